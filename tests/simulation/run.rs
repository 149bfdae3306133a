//! One run, decided by its seed. First anything may happen, and the auditor watches; then no fault strikes any more, and
//! within a bound everything is acknowledged and every count is what the events say.

use crate::auditor::Auditor;
use crate::broker::Broker;
use crate::events;
use crate::life::Life;
use crate::mutants::Mutant;
use crate::plan::Plan;
use crate::seen::{Kind, Seen};
use crate::stores::Backend;
use crate::workers::Crew;
use crate::world::World;
use hotcount::engine::pipeline::Config;
use hotcount::store::{Depth, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// What became of a run.
pub(crate) struct Outcome {
    /// Of everything that happened, in its order.
    pub(crate) hash: u64,
    pub(crate) seen: Seen,
    /// What the auditor found, and what happened last before it.
    pub(crate) violation: Option<(String, Vec<String>)>,
}

/// Runs one seed. A panic anywhere is a violation too.
pub(crate) fn run(seed: u64, double: Option<Mutant>, aloud: bool) -> Outcome {
    let caught = std::panic::catch_unwind(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(in_one_world(seed, double, aloud))
    });
    caught.unwrap_or_else(|_| Outcome {
        hash: 0,
        seen: Seen::default(),
        violation: Some(("a panic; see above".to_owned(), Vec::new())),
    })
}

async fn in_one_world(seed: u64, double: Option<Mutant>, aloud: bool) -> Outcome {
    let world = World::new(Plan::of(seed, double), aloud);
    let backend = Backend::new(&world);
    let auditor = Auditor::new(&world, backend.books());
    let broker = Broker::new(&world, &auditor);
    let crew = Crew::new(&world, &broker, &auditor, backend);
    tokio::spawn(Arc::clone(&broker).keep_time());
    tokio::spawn(Arc::clone(&crew).weather());
    tokio::spawn(read(Arc::clone(&crew)));
    for slot in 0..world.plan.workers {
        tokio::spawn(Arc::clone(&crew).fill_slot(slot));
        tokio::spawn(Arc::clone(&crew).trouble(slot));
    }
    let phases = async {
        suffer(&world, &broker).await;
        settle(&crew).await;
    };
    tokio::select! {
        biased;
        () = violation(&world) => {}
        () = phases => {}
    }
    let violation = world.verdict().map(|verdict| (verdict, world.last_lines()));
    Outcome { hash: world.hash(), seen: world.seen(), violation }
}

async fn violation(world: &World) {
    loop {
        let changed = world.changed.notified();
        if world.verdict().is_some() {
            return;
        }
        changed.await;
    }
}

/// The first phase: events are published, and everything that can go wrong may.
async fn suffer(world: &Arc<World>, broker: &Arc<Broker>) {
    let span = world.plan.span.as_millis() as u64;
    let mut times: Vec<u64> = (0..world.plan.events).map(|_| world.between(0..=span)).collect();
    if world.flip(0.4) {
        // Most of it in one burst.
        let (burst, length) = (world.between(0..=span / 2), span / 20);
        times.iter_mut().skip(3).for_each(|time| *time = burst + *time % (length + 1));
    }
    times.sort_unstable();
    let mut again = JoinSet::new();
    for (n, time) in times.into_iter().enumerate() {
        tokio::time::sleep_until(world.at(Duration::from_millis(time))).await;
        let event = events::draw(world, n);
        if let Some(opposite) = events::opposite(world, &event) {
            broker.publish(&opposite);
        }
        broker.publish(&event);
        while world.strikes(Kind::SameEventAgain) {
            let (world, broker, event) = (Arc::clone(world), Arc::clone(broker), event.clone());
            again.spawn(async move {
                let longest = world.one_of(&[0, 1_000, span]);
                tokio::time::sleep(world.millis(0..=longest)).await;
                if !world.is_calm() {
                    broker.publish(&event);
                }
            });
        }
    }
    tokio::time::sleep_until(world.at(world.plan.span)).await;
    // What comes after everything is settled would find no worker.
    again.join_all().await;
}

/// The second phase: no more faults.
async fn settle(crew: &Arc<Crew>) {
    let Crew { world, broker, .. } = &**crew;
    world.calm_down();
    crew.lives().iter().for_each(|life| crew.go_on(life));
    let deadline = world.now() + world.plan.patience();
    while !(broker.is_done() && world.in_flight() == 0) {
        if world.now() > deadline {
            let open = broker.open_messages();
            let (out, calls, patience) = (broker.out(), world.in_flight(), world.plan.patience());
            return world.violated(format_args!(
                "after {patience:?} without faults these are open: {open:?}; deliveries out: {out:?}, calls on the way: {calls}"
            ));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    crew.close();
    while !crew.is_gone() {
        if world.now() > deadline + Duration::from_secs(120) {
            return world.violated(format_args!("the workers do not stop"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let expected = crew.auditor.settled(&broker.messages());
    let reader = reader(crew);
    for (post, count) in expected {
        let tally = match reader.tally(&post, Depth::ShardsAndMembers).await {
            Ok(tally) => tally,
            Err(error) => return world.violated(format_args!("{post} cannot be read: {error}")),
        };
        if (tally.count, tally.drift()) != (count, Some(0)) {
            world.violated(format_args!("{post} must count {count} in the end: {tally:?}"));
        }
    }
    world.note(Kind::Calm);
    world.say(format_args!("all is settled"));
}

/// The store as somebody sees it who only reads.
fn reader(crew: &Crew) -> Arc<dyn Store> {
    let life = Life::new(&crew.world, crew.world.plan.workers, 0, Config::default());
    crew.backend.store(&life, &crew.auditor)
}

/// Reads posts again and again while everything happens: at any time a tally has no drift.
async fn read(crew: Arc<Crew>) {
    let (reader, world) = (reader(&crew), &crew.world);
    let longest = (world.plan.span.as_millis() as u64 / 4).max(2);
    while !world.is_calm() {
        tokio::time::sleep(world.millis(1..=longest)).await;
        let post = format!("p{}", world.below(world.plan.posts as usize));
        // A failed read is no tally.
        if let Ok(tally) = reader.tally(&post, Depth::ShardsAndMembers).await {
            world.note(Kind::Tally);
            world.say(format_args!("{post} counts {tally:?}"));
            if tally.drift() != Some(0) {
                world.violated(format_args!("{post} is read with a drift: {tally:?}"));
            }
        }
    }
}
