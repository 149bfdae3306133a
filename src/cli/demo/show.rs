//! What the demo shows while it runs: a bar on a terminal, else a line a second. Both on standard error.

use super::stage::Stage;
use hotcount::lab::load::drive::Watch;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use std::convert::Infallible;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// The post that takes most of the load.
pub(super) const HOT_POST: &str = "post-0";

/// How often a bar moves.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// How often a line is printed.
const LINE_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Show {
    messages: u64,
    bar: Option<ProgressBar>,
}

impl Show {
    pub(super) fn new(messages: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(messages);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} · {elapsed} · {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { messages, bar }
    }

    /// One line, above the bar.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::cli::output::complain(text)),
            None => crate::cli::output::complain(text),
        }
    }

    /// Shows how far the load is, and what the hot post counts.
    pub(super) async fn run(&self, watch: &Watch, stage: &Stage) -> Infallible {
        let started = Instant::now();
        let mut tick = tokio::time::interval(if self.bar.is_some() { BAR_EVERY } else { LINE_EVERY });
        tick.tick().await;
        loop {
            tick.tick().await;
            let count = stage.count(HOT_POST).await.map(|count| HumanCount(count.unsigned_abs()));
            let count =
                count.map_or_else(|| "the next worker starts".to_owned(), |count| format!("{HOT_POST} counts {count}"));
            match &self.bar {
                Some(bar) => {
                    bar.set_position(watch.accepted());
                    bar.set_message(count);
                }
                None => crate::cli::output::complain(&format!(
                    "{:.0} s · {} of {} accepted · {count}",
                    started.elapsed().as_secs_f64(),
                    HumanCount(watch.accepted()),
                    HumanCount(self.messages),
                )),
            }
        }
    }
}

/// A bar that is left behind would stand in the way of the results.
impl Drop for Show {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
