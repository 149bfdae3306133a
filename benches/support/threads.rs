//! What each thread of this process has cost. On a machine that others use too, it says more than the time that passed.

use std::collections::BTreeMap;
use std::fmt;

/// Milliseconds of processor time by thread id, with the thread's name.
#[derive(Default)]
pub(crate) struct Times(BTreeMap<String, (String, u64)>);

/// The processor time so far of the threads that there are; none where the system does not say.
pub(crate) fn times() -> Times {
    // Fields 14 and 15 of `stat` are ticks of 10 ms in user and in system; the second is the name, in parentheses.
    let time = |stat: &str| -> Option<(String, (String, u64))> {
        let (head, tail) = stat.rsplit_once(')')?;
        let ticks: u64 = tail.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        let (id, name) = head.split_once('(')?;
        Some((id.to_owned(), (name.to_owned(), ticks * 10)))
    };
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Times::default() };
    let stats = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    Times(stats.filter_map(|stat| time(&stat)).collect())
}

impl Times {
    /// What was added since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (id, (_, ms)) in &mut self.0 {
            *ms -= before.0.get(id).map_or(0, |(_, before)| *before);
        }
        self
    }

    /// All threads together, in seconds.
    #[allow(dead_code, reason = "not every benchmark sums")]
    pub(crate) fn seconds(&self) -> f64 {
        self.0.values().map(|(_, ms)| *ms).sum::<u64>() as f64 / 1e3
    }
}

/// One number a name: the threads of a pool share theirs.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for (name, ms) in self.0.values().filter(|(_, ms)| *ms > 0) {
            let (threads, sum) = names.entry(name).or_default();
            *threads += 1;
            *sum += ms;
        }
        for (place, (name, (threads, ms))) in names.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            let times = if *threads > 1 { format!(" × {threads}") } else { String::new() };
            write!(f, "{comma}{name}{times} {ms} ms")?;
        }
        Ok(())
    }
}
