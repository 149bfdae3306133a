//! The demo's workers: processes of their own, one after the other on the same store.

use super::place::Place;
use super::show::Show;
use super::stage::Stage;
use anyhow::{Context, bail};
use hotcount::engine::progress::Counted;
use hotcount::lab::load::drive::Watch;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long a worker may take to listen: after a kill it reads its log back.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it may take to end: longer than its own deadline for a drain.
const END_TIMEOUT: Duration = Duration::from_secs(40);

/// Lines of the worker's log that an error shows.
const LOG_LINES: usize = 5;

/// What a worker says first.
#[derive(Deserialize)]
struct Listening {
    http: String,
}

/// A kill that happened.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Kill {
    /// Messages that were known to be accepted.
    pub(super) at: u64,
    /// Until the next worker listened.
    pub(super) back_after_s: f64,
}

/// One process.
struct Worker {
    process: Child,
    /// It ends when this is closed, so it cannot outlive the demo, however the demo ends.
    stdin: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

/// The worker that is alive, and those before it.
pub(super) struct Workers<'a> {
    place: &'a Place,
    stage: &'a Stage,
    show: &'a Show,
    alive: Worker,
    kills: Vec<Kill>,
}

impl<'a> Workers<'a> {
    /// Starts the first one.
    pub(super) async fn start(place: &'a Place, stage: &'a Stage, show: &'a Show) -> anyhow::Result<Self> {
        let alive = start(place, stage, show, 1).await?;
        Ok(Self { place, stage, show, alive, kills: Vec::new() })
    }

    /// Kills the worker whenever the stage says so, and starts the next one. Returns only when something went wrong.
    pub(super) async fn kill_when_due(&mut self, watch: &Watch) -> anyhow::Result<Infallible> {
        loop {
            tokio::select! {
                ended = self.alive.process.wait() => {
                    let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                    bail!("the worker ended by itself ({how}); its log ends with:\n{}", log_end(self.place));
                }
                () = self.stage.kill_is_due(self.kills.len()) => {}
            }
            let (killed, at) = (Instant::now(), watch.accepted());
            self.stage.leave();
            self.alive.process.kill().await.context("the worker cannot be killed")?;
            let number = self.kills.len() + 1;
            self.show.say(&format!("worker {number} killed (SIGKILL) after {at} accepted messages"));
            self.alive = start(self.place, self.stage, self.show, number + 1).await?;
            self.kills.push(Kill { at, back_after_s: killed.elapsed().as_secs_f64() });
        }
    }

    /// Lets the worker drain: the kills, and how the last worker's deliveries ended.
    pub(super) async fn finish(mut self) -> anyhow::Result<(Vec<Kill>, Counted)> {
        drop(self.alive.stdin);
        let ended = timeout(END_TIMEOUT, async {
            let said = self.alive.said.next_line().await?;
            anyhow::Ok((said, self.alive.process.wait().await?))
        });
        let wrong = || format!("the worker did not end as it should; its log ends with:\n{}", log_end(self.place));
        match ended.await {
            Ok(Ok((Some(said), status))) if status.success() => {
                Ok((self.kills, serde_json::from_str(&said).with_context(wrong)?))
            }
            _ => bail!(wrong()),
        }
    }

    /// Ends the worker, whatever it is doing.
    pub(super) async fn abandon(mut self) {
        // It may have ended already.
        let _ = self.alive.process.kill().await;
    }
}

/// Starts a worker and waits until it listens.
async fn start(place: &Place, stage: &Stage, show: &Show, number: usize) -> anyhow::Result<Worker> {
    let log = File::options().create(true).append(true).open(place.log());
    let log = log.with_context(|| format!("the worker's log {} cannot be written", place.log().display()))?;
    let program = std::env::current_exe().context("this program does not find itself")?;
    let mut command = Command::new(program);
    // The caller's settings are for the caller's workers.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOTCOUNT_")) {
        command.env_remove(name);
    }
    command.args(["run", "--source", "http:", "--http", "127.0.0.1:0", "--json", "--child", "--store"]);
    command.arg(place.store_url());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
    // A group of its own, so that Ctrl-C reaches the demo alone.
    command.process_group(0);
    let mut process = command.spawn().context("a worker cannot be started")?;
    let id = process.id().unwrap_or_default();
    let stdin = process.stdin.take().context("a worker's standard input is a pipe")?;
    let stdout = process.stdout.take().context("a worker's standard output is a pipe")?;
    let mut said = BufReader::new(stdout).lines();
    let first = timeout(START_TIMEOUT, said.next_line()).await;
    let wrong = || format!("worker {number} does not start; its log ends with:\n{}", log_end(place));
    let Ok(Ok(Some(first))) = first else { bail!(wrong()) };
    let listening: Listening = serde_json::from_str(&first).with_context(wrong)?;
    stage.enter(&listening.http).await?;
    show.say(&format!("worker {number} (process {id}) listens on {}", listening.http));
    Ok(Worker { process, stdin, said })
}

/// The last lines of the worker's log.
fn log_end(place: &Place) -> String {
    let text = fs::read_to_string(place.log()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
