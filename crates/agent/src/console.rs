//! What the agent says to whoever looks at the console.

use std::io::Write as _;

/// Writes a line. A console that takes nothing is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "hutch-agent: {line}");
}

/// Writes an error and its causes in one line.
pub(crate) fn say_error(error: &dyn std::error::Error) {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    say(&line);
}
