//! A worker whose store never answers: this test program, started once more.

#[path = "../support/faults.rs"]
#[allow(dead_code, reason = "shared by several test binaries")]
mod faults;

use crate::process::Worker;
use faults::{Fault, Faulty};
use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::Progress;
use hotcount::http_api::server::{Limits, Server};
use hotcount::store::memory::Memory;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Set for the child: its source, and the MiB that it may hold.
const PLAN: &str = "HOTCOUNT_TEST_SILENT_STORE";

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(86_400);

/// Starts one with this source and budget.
pub(crate) fn worker(source: &str, budget_mib: usize) -> Worker {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "silent::the_worker_where_this_process_is_one", "--nocapture"]);
    Worker::start_as({
        command.env(PLAN, format!("{source} {budget_mib}"));
        command
    })
}

#[test]
fn the_worker_where_this_process_is_one() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let (source, budget_mib) = plan.split_once(' ').unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(work(source, budget_mib.parse().unwrap()));
}

async fn work(source: &str, budget_mib: usize) {
    let store =
        Faulty::new(Arc::new(Memory::default()), |_, _| Fault::slow(NEVER)).quarantining(|_| Fault::slow(NEVER));
    let config = Config { max_held_bytes: budget_mib << 20, ..Config::default() };
    let held = config.held();
    let (source, routes) = hotcount::connect::source_with_routes(source, &held).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("http://{}", listener.local_addr().unwrap());
    let server = Server::new(listener, routes, Limits::default());
    let stop = CancellationToken::new();
    let engine = pipeline::run_beside(
        held,
        source,
        store,
        config,
        stop.clone().cancelled_owned(),
        Arc::new(Progress::default()),
    );
    tokio::select! {
        ended = engine => drop(ended.unwrap()),
        () = server.run(stop) => {}
    }
}
