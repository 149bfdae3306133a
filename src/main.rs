//! The `hotcount` command: parse, log, run, exit code.

mod cli;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::usage(&error),
    };
    cli::log::start(&cli.log, cli.log_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli::output::complain(&format!("error: no runtime: {error}"));
            return cli::Exit::Fatal.into();
        }
    };
    let ended = runtime.block_on(cli.command.run());
    // Not dropped: that would wait for a read of standard input, which may never end.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit.into(),
        Err(error) => {
            cli::output::complain(&format!("error: {}", cli::output::with_causes(&error)));
            cli::Exit::Fatal.into()
        }
    }
}
