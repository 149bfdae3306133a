//! What the process uses, under the names that every Prometheus client uses. Read from Linux's `/proc` when the page is
//! asked for; elsewhere these metrics are missing.

use std::fmt::Write;
use std::fs;

/// Ticks a second in `/proc/PID/stat`: `USER_HZ`, which Linux keeps at 100 for programs whatever its own clock does.
const TICKS_A_SECOND: f64 = 100.0;

/// The metrics in Prometheus's text format.
pub(super) fn rendered() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    let text =
        page(&read("/proc/self/status"), &read("/proc/self/stat"), &read("/proc/self/limits"), &read("/proc/stat"));
    text + &line("process_open_fds", "gauge", "Open file descriptors.", open)
}

/// What the four files of `/proc` say.
fn page(status: &str, stat: &str, limits: &str, machine: &str) -> String {
    let stat = Stat::parse(stat);
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|s| s.parse::<f64>().ok());
    let started = booted.zip(stat.as_ref()).map(|(booted, stat)| booted + stat.started_ticks / TICKS_A_SECOND);
    [
        line(
            "process_cpu_seconds_total",
            "counter",
            "CPU time used, of the user and of the system.",
            stat.as_ref().map(|stat| stat.cpu_ticks / TICKS_A_SECOND),
        ),
        line("process_resident_memory_bytes", "gauge", "Resident memory.", bytes(status, "VmRSS:")),
        line("process_virtual_memory_bytes", "gauge", "Virtual memory.", bytes(status, "VmSize:")),
        line("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970.", started),
        line("process_max_fds", "gauge", "File descriptors that may be open.", max_open(limits)),
    ]
    .concat()
}

/// One metric, or nothing where its value is not known.
fn line(name: &str, kind: &str, help: &str, value: Option<f64>) -> String {
    let mut text = String::new();
    if let Some(value) = value {
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
    }
    text
}

/// A line of `/proc/PID/status` such as `VmRSS:    1234 kB`, in bytes.
fn bytes(status: &str, name: &str) -> Option<f64> {
    let kib = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1_024.0)
}

/// The soft limit of open files; none when it is unlimited.
fn max_open(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

struct Stat {
    cpu_ticks: f64,
    started_ticks: f64,
}

impl Stat {
    /// The command's name stands in parentheses and may hold anything, so fields are counted from the last one. The third
    /// is the first after it; 14 and 15 are the CPU time, 22 the start.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
        Some(Self { cpu_ticks: field(14)? + field(15)?, started_ticks: field(22)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "17 (a ) name) S 1 17 17 0 -1 4194304 99 0 0 0 150 50 0 0 20 0 9 0 1000 3133440 384 1 1 1 1 0";

    #[test]
    fn what_proc_says_has_the_standard_names_and_units() {
        let page = page(
            "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\n",
            STAT,
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            20000                30000                files\n",
            "cpu 1 2\nbtime 1700000000\n",
        );
        for expected in [
            "process_cpu_seconds_total 2",
            "process_resident_memory_bytes 1048576",
            "process_virtual_memory_bytes 2097152",
            "process_start_time_seconds 1700000010",
            "process_max_fds 20000",
            "# TYPE process_cpu_seconds_total counter",
        ] {
            assert!(page.lines().any(|line| line == expected), "{expected} in\n{page}");
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        assert_eq!(page("", "", "", ""), "");
        assert_eq!(page("VmRSS:\tmany", "17 (x", "Max open files unlimited unlimited files", "btime x"), "");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_descriptors_and_a_start() {
        let page = rendered();
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).expect("it is there");
            line.parse().expect("a number")
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 1.0 && value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
}
