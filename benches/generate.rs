//! Events a second that one core generates: into memory, and into a file.
//!
//! `cargo bench --bench generate --no-default-features`

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a benchmark whose parts cannot be set up has nothing to say"
)]

use hotcount::lab::load::drive::{Config as Drive, Ended, Watch, drive};
use hotcount::lab::load::target::File;
use hotcount::lab::load::{Config, Faults, Plan, Shape};
use std::hint::black_box;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

const MESSAGES: u64 = 2_000_000;
const ROUNDS: usize = 5;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let faults = Faults {
        redelivered: 0.2,
        retried: 0.05,
        double_clicked: 0.05,
        late: 0.01,
        shuffled: 0.3,
        ..Faults::default()
    };
    println!("{MESSAGES} messages with faults, median of {ROUNDS} rounds, million a second");
    println!("{:<12} {:>10} {:>10} {:>10} {:>8}", "shape", "in memory", "to a file", "expected", "bytes");
    for shape in ["viral:0.8", "zipf:1", "uniform", "toggle"] {
        let shape: Shape = shape.parse().expect("a shape");
        let config = Config { shape, faults, messages: MESSAGES, posts: 10_000, ..Config::default() };
        let plan = Plan::new(config).expect("can be");
        let (mut memory, mut file, mut expect) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            let (mut generator, mut out) = (plan.generate(), Vec::with_capacity(1 << 20));
            bytes = 0;
            while generator.write_next(&mut out).is_some() {
                out.push(b'\n');
                if out.len() > 900_000 {
                    bytes += black_box(&out).len();
                    out.clear();
                }
            }
            memory.push(started.elapsed().as_secs_f64());

            let path = tempfile::NamedTempFile::new().expect("a file");
            let started = Instant::now();
            let ended = runtime.block_on(async {
                let target = File::create(path.path()).await.expect("a file");
                drive(&plan, &target, &Drive::default(), &CancellationToken::new(), &Watch::default()).await
            });
            assert_eq!(ended, Ended::Complete);
            file.push(started.elapsed().as_secs_f64());

            let started = Instant::now();
            black_box(plan.expect());
            expect.push(started.elapsed().as_secs_f64());
        }
        let rate = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            MESSAGES as f64 / times[times.len() / 2] / 1e6
        };
        println!(
            "{:<12} {:>10.2} {:>10.2} {:>10.2} {:>8}",
            shape.to_string(),
            rate(memory),
            rate(file),
            rate(expect),
            bytes as u64 / MESSAGES
        );
    }
}
