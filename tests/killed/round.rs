//! One round: a place, three workers that are killed one after the other, one that finishes, and the audit.

use crate::audit::{DEADLINE, Scene, metric};
use crate::child;
use crate::events::Events;
use crate::kill::Kill;
use crate::place::{Made, Place, Way};
use crate::process::{Worker, hotcount, until};
use crate::sender::Sending;
use crate::trap::{BATCHES, Catch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Workers that are killed in a round.
pub(crate) const KILLS: u64 = 3;

/// Streams of the workers of a round, the last one's last: each has more than all before it.
const STREAMS: [usize; KILLS as usize + 1] = [1, 3, 9, 32];

/// How long a worker gets to meet its moment before more events are published: some may have gone to streams of a worker
/// that was killed.
const MORE_EVENTS_AFTER: Duration = Duration::from_secs(8);

/// So that a chunk is many commits.
const SMALL_BATCHES: [&str; 4] = ["--lanes", "2", "--batch-writes", "12"];

/// The same one after the other, so that no commit is refused for another.
const SMALL_BATCHES_IN_TURN: [&str; 4] = ["--lanes", "1", "--batch-writes", "12"];

/// So that nothing is committed before the drain: shorter than the lease of the source http.
pub(crate) const LONG_LINGER: Duration = Duration::from_secs(20);

/// Deliveries that wait for a drain. Most of them are new, so there is something to commit.
pub(crate) const HELD_FOR_A_DRAIN: u64 = 30;

/// What was done.
pub(crate) type Done = BTreeMap<(Way, Kill), u64>;

/// Does the round of a seed; panics where a count is wrong. `None` where its emulators are not installed.
pub(crate) async fn round(seed: u64, tell: bool) -> Option<Done> {
    let ways = Way::ALL.len() as u64;
    let way = Way::ALL[(seed % ways) as usize];
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut place = Place::new(way, Made::Plain).await?;
    // From a checkpoint after every batch to none at all.
    place.memory_bytes = [Some(1), Some(20_000), None][dice.random_range(0..3)];
    let mut round = Round {
        scene: Scene::new(place, Events::new(SmallRng::seed_from_u64(dice.random()))),
        dice,
        begun: tell.then(Instant::now),
    };
    let kinds = Kill::all(way);
    let mut done = Done::new();
    for number in 0..KILLS {
        // The seed decides, and seeds in a row go through all of them.
        let kill = kinds[((seed / ways * KILLS + number) % kinds.len() as u64) as usize];
        round.say(&format!("{way:?}: {kill:?}"));
        round.killed(kill, STREAMS[number as usize]).await;
        if round.dice.random_bool(0.5) {
            let counted = round.scene.place.counts();
            assert!(counted.drifting.is_empty(), "a commit is whole or not at all: {:?}", counted.drifting);
        }
        *done.entry((way, kill)).or_default() += 1;
    }
    round.scene.publish().await;
    round.scene.finished_by(|scene| scene.worker(STREAMS[KILLS as usize], &SMALL_BATCHES)).await;
    round.say("all is counted once");
    Some(done)
}

struct Round {
    scene: Scene,
    dice: SmallRng,
    begun: Option<Instant>,
}

impl Round {
    fn say(&self, what: &str) {
        if let Some(begun) = self.begun {
            println!("{:6.1} s  {what}", begun.elapsed().as_secs_f64());
        }
    }

    async fn some_time(&mut self, at_most_ms: u64) {
        sleep(Duration::from_millis(self.dice.random_range(0..at_most_ms))).await;
    }

    /// One worker, until it is dead.
    async fn killed(&mut self, kill: Kill, streams: usize) {
        self.scene.publish().await;
        let skip = self.dice.random_range(0..3);
        match (kill, kill.catch(skip)) {
            (Kill::Starting, _) => {
                let arguments = self.scene.arguments(streams, &SMALL_BATCHES);
                let mut command = hotcount(&["run", "--http", "127.0.0.1:0"]);
                let quiet = command.args(arguments).stdout(std::process::Stdio::null());
                let mut child = quiet.stderr(std::process::Stdio::null()).spawn().unwrap();
                self.some_time(800).await;
                child.kill().unwrap();
                child.wait().unwrap();
            }
            (_, None) => self.killed_by_chance(kill, streams).await,
            (_, Some(catch)) if !self.scene.place.way.writes_firestore() && catch.method == "Commit" => {
                self.killed_by_itself(catch, streams).await;
            }
            (_, Some(catch)) => self.killed_on_the_wire(kill, catch, streams).await,
        }
        self.scene.place.trap.disarm();
    }

    async fn killed_by_chance(&mut self, kill: Kill, streams: usize) {
        let worker = self.scene.worker(streams, &SMALL_BATCHES);
        let sending = self.scene.sender.send(&worker.address);
        if kill == Kill::Draining {
            self.scene.place.trap.slow();
            self.some_time(400).await;
            worker.signal("TERM");
        }
        self.some_time(700).await;
        worker.kill();
        self.scene.sender.answered(sending).await;
    }

    /// The embedded store: a child that knows when to die.
    async fn killed_by_itself(&mut self, catch: Catch, streams: usize) {
        let begun = Instant::now();
        loop {
            let command = child::command(&catch, &self.scene.place.source(streams), &self.scene.place.store());
            let mut worker = Worker::start_as(command);
            let mut sending = vec![self.scene.sender.send(&worker.address)];
            if catch.in_drain {
                self.while_publishing(&worker, &mut sending, || worker.log().contains(child::HOLDING)).await;
                worker.signal("TERM");
            }
            let mut published = Instant::now();
            let status = loop {
                if let Some(status) = worker.ended() {
                    break status;
                }
                assert!(begun.elapsed() < DEADLINE, "{catch:?} never came:\n{}", worker.log());
                if published.elapsed() > MORE_EVENTS_AFTER && !catch.in_drain {
                    self.scene.publish().await;
                    sending.push(self.scene.sender.send(&worker.address));
                    published = Instant::now();
                }
                sleep(Duration::from_millis(10)).await;
            };
            for sending in sending {
                self.scene.sender.answered(sending).await;
            }
            if status.signal() == Some(9) {
                return;
            }
            assert!(status.success() && catch.in_drain, "{catch:?} never came: {status}\n{}", worker.log());
            // All that it held was stored already, so the drain had nothing to commit.
            self.scene.publish().await;
        }
    }

    /// Until something is so, with more events now and then.
    async fn while_publishing(&mut self, worker: &Worker, sending: &mut Vec<Sending>, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        let mut published = begun;
        while !is_so() {
            assert!(begun.elapsed() < DEADLINE, "it never came to this:\n{}", worker.log());
            if published.elapsed() > MORE_EVENTS_AFTER {
                self.scene.publish().await;
                sending.push(self.scene.sender.send(&worker.address));
                published = Instant::now();
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// A call of the worker is caught on its way, and then the worker is killed.
    async fn killed_on_the_wire(&mut self, kill: Kill, catch: Catch, streams: usize) {
        let linger = LONG_LINGER.as_millis().to_string();
        let settings: &[&str] = match catch {
            Catch { in_drain: true, .. } => &["--lanes", "1", "--linger-ms", &linger],
            Catch { done: true, .. } => &SMALL_BATCHES_IN_TURN,
            Catch { .. } => &SMALL_BATCHES,
        };
        loop {
            let mut caught = self.scene.place.trap.arm(catch);
            let mut worker = self.scene.worker(streams, settings);
            let mut sending = vec![self.scene.sender.send(&worker.address)];
            if catch.in_drain {
                let holds = || metric(&worker, "hotcount_held_deliveries") >= HELD_FOR_A_DRAIN as f64;
                self.while_publishing(&worker, &mut sending, holds).await;
                self.scene.place.trap.begin_drain();
                worker.signal("TERM");
            }
            let mut document = None;
            let (begun, mut published) = (Instant::now(), Instant::now());
            while document.is_none() && worker.ended().is_none() {
                assert!(begun.elapsed() < DEADLINE, "{catch:?} never came:\n{}", worker.log());
                if published.elapsed() > MORE_EVENTS_AFTER && !catch.in_drain {
                    self.scene.publish().await;
                    sending.push(self.scene.sender.send(&worker.address));
                    published = Instant::now();
                }
                document = tokio::time::timeout(Duration::from_millis(10), caught.recv()).await.ok().flatten();
            }
            if let Some(document) = &document {
                self.say(&format!("caught {} {document}", catch.method));
                self.killed_when(kill, &catch, document, worker).await;
            } else {
                assert!(catch.in_drain, "it ended by itself:\n{}", worker.log());
            }
            for sending in sending {
                self.scene.sender.answered(sending).await;
            }
            if document.is_some() {
                return;
            }
            // All that it held was stored already, so the drain had nothing to commit.
            self.scene.publish().await;
        }
    }

    /// Kills the worker when what was caught is durable, if it is to be, and never if not.
    async fn killed_when(&self, kill: Kill, catch: &Catch, document: &str, worker: Worker) {
        let begun = Instant::now();
        while catch.done && !self.scene.place.has(document).await {
            assert!(begun.elapsed() < DEADLINE, "{document} was never written");
            sleep(Duration::from_millis(5)).await;
        }
        if kill == Kill::DrainingBeforeAck {
            until("all is settled", 0.0, || metric(&worker, "hotcount_held_deliveries"));
        }
        worker.kill();
        if catch.holds == BATCHES && !catch.done {
            assert!(!self.scene.place.has(document).await, "{document} was to be lost");
        }
    }
}
