//! The arguments that `cargo test` passes to a test program with a `main` of its own.

/// What Rust's own harness takes; `cargo test -- --nocapture` passes it to every test there is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LibTest {
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, hide = true)]
    skip: Vec<String>,
    #[arg(long, hide = true)]
    include_ignored: bool,
    #[arg(long, hide = true, alias = "no-capture")]
    nocapture: bool,
    #[arg(long, hide = true)]
    show_output: bool,
    #[arg(short, long, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    test_threads: Option<String>,
    #[arg(long, hide = true)]
    color: Option<String>,
    #[arg(long, hide = true)]
    format: Option<String>,
}

impl LibTest {
    /// Whether a check is asked for, where `filters` are the words given beside the flags.
    pub(crate) fn wants(&self, name: &str, filters: &[String]) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        // None of them is marked to be ignored.
        !self.ignored && (filters.is_empty() || filters.iter().any(fits)) && !self.skip.iter().any(fits)
    }
}
