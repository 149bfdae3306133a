//! Logs go to standard error, so that standard output stays for results.

use super::plain::PlainStderr;
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Starts logging. The clients of the cloud services are kept to warnings: they would log every call.
pub(crate) fn start(filter: &str, format: Format) {
    let quiet = "h2=warn,hyper=warn,reqwest=warn,tonic=warn,tower=warn,gcloud_sdk=warn,firestore=warn,lsm_tree=error";
    let filter = EnvFilter::builder().parse_lossy(format!("{quiet},{filter}"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter);
    match format {
        Format::Text => {
            let coloured = std::io::stderr().is_terminal();
            lines.with_target(false).with_ansi(coloured).with_writer(move || PlainStderr { coloured }).init();
        }
        Format::Json => lines.with_writer(std::io::stderr).json().flatten_event(true).init(),
    }
}
