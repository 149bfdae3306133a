//! What a load looks like while it runs, and what it says at the end.

use hotcount::lab::load::Plan;
use hotcount::lab::load::drive::{Ended, Watch};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;

/// The percentiles that are reported, with their names.
const QUANTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

pub(super) struct Report<'a> {
    pub(super) target: String,
    pub(super) plan: &'a Plan,
    pub(super) ended: &'a Ended,
    pub(super) watch: &'a Watch,
    pub(super) took: Duration,
}

impl Report<'_> {
    fn per_second(&self) -> f64 {
        self.watch.accepted() as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub(super) fn text(&self) -> String {
        let (accepted, messages) = (self.watch.accepted(), self.plan.messages());
        let ended = match self.ended {
            Ended::Complete => "complete".to_owned(),
            Ended::Stopped => "stopped: the same command again completes it".to_owned(),
            Ended::GaveUp(why) => format!("gave up: {why}"),
        };
        let latency = self.watch.latency();
        let percentiles: Vec<_> = QUANTILES
            .iter()
            .map(|(name, quantile)| format!("{name} {:.1}", latency.value_at_quantile(*quantile) as f64 / 1e3))
            .collect();
        format!(
            "{ended}\naccepted {accepted} of {messages} by {} · poison reported {} · sends again {} · {:.2} s · {:.0} \
             messages/s\nlatency in ms: {}",
            self.target,
            self.watch.poison(),
            self.watch.retries(),
            self.took.as_secs_f64(),
            self.per_second(),
            percentiles.join(" · ")
        )
    }

    pub(super) fn json(&self) -> String {
        let latency = self.watch.latency();
        let percentiles: serde_json::Map<_, _> = QUANTILES
            .iter()
            .map(|(name, quantile)| ((*name).to_owned(), json!(latency.value_at_quantile(*quantile) as f64 / 1e3)))
            .collect();
        let (ended, problem) = match self.ended {
            Ended::Complete => ("complete", None),
            Ended::Stopped => ("stopped", None),
            Ended::GaveUp(why) => ("gave up", Some(why)),
        };
        let config = self.plan.config();
        json!({
            "target": self.target, "shape": config.shape.to_string(), "seed": config.seed, "ended": ended,
            "problem": problem, "messages": self.plan.messages(), "likes": self.plan.likes(),
            "accepted": self.watch.accepted(), "poison_reported": self.watch.poison(),
            "sends_again": self.watch.retries(), "elapsed_s": self.took.as_secs_f64(),
            "messages_per_s": self.per_second().round(), "latency_ms": percentiles,
        })
        .to_string()
    }
}

/// Progress on standard error, where that is a terminal.
pub(super) async fn show(watch: &Watch, messages: u64) -> Infallible {
    let bar = ProgressBar::new(messages);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} · {per_sec} · {elapsed} · {eta} left{msg}")
    {
        bar.set_style(style);
    }
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tick.tick().await;
        bar.set_position(watch.accepted());
        bar.set_message(
            watch
                .trouble()
                .map(|trouble| format!(" · trying again: {}", crate::cli::plain::plain(&trouble)))
                .unwrap_or_default(),
        );
    }
}
