//! `hutch-jail`: starts one process in its jail. Reads a specification (JSON) on standard input, prints one
//! line of JSON on standard output. Exit status 0 when the process was started, 1 when not.

mod launcher;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Instant;

use hutch_jail::report::{Outcome, Report, Step};
use hutch_jail::specification::Specification;

fn main() -> ExitCode {
    let began = Instant::now();
    if std::env::args().nth(1).is_some_and(|argument| argument == "--help" || argument == "-h") {
        eprintln!(
            "usage: hutch-jail < specification.json\n\nStarts one guest kernel in its jail; used by `hutch serve`."
        );
        return ExitCode::SUCCESS;
    }
    let outcome = read().and_then(|specification| launcher::launch(&specification, began));
    let (status, outcome) = match outcome {
        Ok(started) => (ExitCode::SUCCESS, Outcome::Started(started)),
        Err(failure) => (ExitCode::FAILURE, Outcome::Failed(failure)),
    };
    let line = serde_json::to_string(&Report::new(outcome)).expect("a report has only texts and numbers");
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => status,
        Err(_) => ExitCode::FAILURE,
    }
}

fn read() -> Result<Specification, hutch_jail::report::Failure> {
    let mut text = Vec::new();
    let subject = "standard input";
    std::io::stdin().read_to_end(&mut text).map_err(|error| launcher::failed(Step::Specification, subject, &error))?;
    Specification::parse(&text).map_err(|error| launcher::failed(Step::Specification, subject, &error))
}
