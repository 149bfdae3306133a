//! A worker on the embedded store that kills itself: this test program, started once more. There is no wire on which
//! another process could see a commit, so the store is wrapped, and its real `apply` is the moment.

use crate::faults::{Fault, Faulty};
use crate::round::{HELD_FOR_A_DRAIN, LONG_LINGER};
use crate::trap::{BATCHES, Catch};
use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::Progress;
use hotcount::store;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Set for the child: what it does, where from and where to.
const PLAN: &str = "HOTCOUNT_TEST_KILLS_ITSELF";

/// How often the child looks whether it holds enough.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Told on standard error when enough waits for a drain.
pub(crate) const HOLDING: &str = "enough waits for a drain";

/// The command that starts a worker which dies at `catch`.
pub(crate) fn command(catch: &Catch, source: &str, store: &str) -> Command {
    let likes = catch.holds == BATCHES;
    let mut command = Command::new(std::env::current_exe().unwrap());
    let plan = format!("{likes} {} {} {} {source} {store}", catch.done, catch.skip, catch.in_drain);
    command.env(PLAN, plan);
    command
}

/// The worker, where this process is one.
pub(crate) fn run() -> Option<ExitCode> {
    let plan = std::env::var(PLAN).ok()?;
    let words: Vec<&str> = plan.split(' ').collect();
    let [likes, done, skip, in_drain, source, store] = words[..] else { panic!("{plan}") };
    let moment = Moment {
        likes: likes == "true",
        done: done == "true",
        skip: AtomicUsize::new(skip.parse().unwrap()),
        in_drain: in_drain == "true",
        draining: AtomicBool::new(false),
    };
    tokio::runtime::Runtime::new().unwrap().block_on(work(Arc::new(moment), source, store));
    Some(ExitCode::SUCCESS)
}

struct Moment {
    likes: bool,
    done: bool,
    skip: AtomicUsize,
    in_drain: bool,
    draining: AtomicBool,
}

impl Moment {
    /// Dies if this is the moment.
    fn reached(&self, likes: bool, done: bool) {
        if (likes, done) != (self.likes, self.done) || (self.in_drain && !self.draining.load(Ordering::Acquire)) {
            return;
        }
        let skipped = self.skip.fetch_update(Ordering::AcqRel, Ordering::Acquire, |skip| skip.checked_sub(1));
        if skipped.is_err() {
            let _ = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
            loop {
                std::thread::park();
            }
        }
    }
}

async fn work(moment: Arc<Moment>, source: &str, store: &str) {
    let store = hotcount::connect::store(store, &store::Options::default()).await.unwrap();
    let at = |likes: bool, done: bool| {
        let moment = Arc::clone(&moment);
        move || moment.reached(likes, done)
    };
    let (before, before_poison) = (at(true, false), at(false, false));
    let store = Faulty::new(store, move |_, _| {
        before();
        Fault::default()
    });
    let store = store
        .quarantining(move |_| {
            before_poison();
            Fault::default()
        })
        .afterwards(at(true, true), at(false, true));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("http://{}", listener.local_addr().unwrap());
    let shutdown = CancellationToken::new();
    let mut config = Config { lanes: Some(2), ..Config::default() };
    match moment.in_drain {
        // Everything waits for the drain.
        true => config.linger = LONG_LINGER,
        false => config.batch_writes = Some(12),
    }
    let progress = Arc::new(Progress::default());
    let held = config.held();
    let (source, routes) = hotcount::connect::source_with_routes(source, &held).await.unwrap();
    let engine =
        pipeline::run_beside(held, source, store, config, shutdown.clone().cancelled_owned(), Arc::clone(&progress));
    let tell = async {
        while progress.counted().received < HELD_FOR_A_DRAIN {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        eprintln!("{HOLDING}");
        std::future::pending::<()>().await;
    };
    let mut term = signal(SignalKind::terminate()).unwrap();
    let stop = async {
        term.recv().await;
        moment.draining.store(true, Ordering::Release);
        shutdown.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = engine => drop(ended.unwrap()),
        served = axum::serve(listener, routes) => served.unwrap(),
        () = stop => {}
        () = tell => {}
    }
}
