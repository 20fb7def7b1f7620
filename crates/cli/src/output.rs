//! Standard output and standard error.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Prints text to standard output.
///
/// A reader that has gone away is no failure: it has seen what it wanted.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::because("standard output cannot be written", &error))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON: over several lines for a terminal, on one for a program.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let pretty = io::stdout().is_terminal();
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    let text = text.map_err(|error| Failure::because("the answer cannot be written as JSON", &error))?;
    print(&format!("{text}\n"))
}

/// Prints a line to standard error. When nobody reads it, nothing is lost.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
