//! `hutch-jail`: starts one process in its jail. Reads a specification (JSON) on standard input, prints one
//! line of JSON on standard output. Exit status 0 when the process was started, 1 when not.

mod launcher;

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Instant;

use hutch_jail::report::{Outcome, Report, Started, Step};
use hutch_jail::specification::Specification;

fn main() -> ExitCode {
    let began = Instant::now();
    if std::env::args().nth(1).is_some_and(|argument| argument == "--help" || argument == "-h") {
        eprintln!(
            "usage: hutch-jail < specification.json\n\nStarts one guest kernel in its jail; used by `hutch serve`."
        );
        return ExitCode::SUCCESS;
    }
    let launched = read().and_then(|specification| launcher::launch(&specification, began, report_start));
    let Err(failure) = launched else { return ExitCode::SUCCESS };
    // When nobody reads it there is nobody to tell that either; nothing of the launch is left.
    report(Outcome::Failed(failure)).ok();
    ExitCode::FAILURE
}

fn report_start(started: Started) -> io::Result<()> {
    report(Outcome::Started(started))
}

fn report(outcome: Outcome) -> io::Result<()> {
    let line = serde_json::to_string(&Report::new(outcome))?;
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

fn read() -> Result<Specification, hutch_jail::report::Failure> {
    let mut text = Vec::new();
    let subject = "standard input";
    io::stdin().read_to_end(&mut text).map_err(|error| launcher::failed(Step::Specification, subject, &error))?;
    Specification::parse(&text).map_err(|error| launcher::failed(Step::Specification, subject, &error))
}
