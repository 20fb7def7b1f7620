//! `hutch-agent`: init and agent inside the guest. As the first process it boots the guest and serves the host
//! for ever; `hutch-agent --serve SOCKET` serves on a socket of an ordinary machine.

mod agent;

mod boot;

mod channel;

mod console;

mod exec;

mod files;

mod machine;

mod self_signal;

mod serve;

mod sys;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: hutch-agent --serve SOCKET [--without-groups] [--self DIRECTORY]\n       \
    hutch-agent --version\n\
    As the first process of a guest it takes no arguments.\n\
    --self takes self signals: by the FIFO DIRECTORY/self, and over HTTP at the port in DIRECTORY/port.";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_str().unwrap_or_default()).collect();
    match words.as_slice() {
        // The kernel passes words of its command line that it does not know: they are not for this program.
        _ if std::process::id() == 1 => boot::start::run(),
        ["--serve", _, options @ ..] => match serve::Options::parse(options) {
            Some(options) => serve(arguments[1].as_ref(), &options),
            None => usage(),
        },
        ["--version"] => {
            use std::io::Write as _;
            let written = writeln!(std::io::stdout(), "hutch-agent {}", env!("CARGO_PKG_VERSION"));
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    console::say(USAGE);
    ExitCode::from(2)
}

fn serve(socket: &Path, options: &serve::Options<'_>) -> ExitCode {
    match serve::run(socket, options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say_error(error.as_ref());
            ExitCode::FAILURE
        }
    }
}
