//! `hutch`, the command line.

use std::process::ExitCode;

use clap::Parser as _;
use hutch_cli::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return hutch_cli::failure::Failure::of(&error).print(),
    };
    let code = match runtime.block_on(arguments.run()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.print(),
    };
    // A thread that waits for a terminal's next line would keep the process.
    runtime.shutdown_background();
    code
}
