//! The agent as an ordinary program on a socket: the same requests, on a machine that it leaves as it is.
//! For tests, and for trying the protocol out.

use std::error::Error;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use crate::agent::{Agent, Setup};
use crate::channel::Source;
use crate::console;
use crate::exec::group::{self, Groups};
use crate::self_signal::Sources;
use crate::sys;

/// How to serve.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// Commands get no control groups, even where there could be some.
    without_groups: bool,
    /// Where self signals are taken: a FIFO and the number of a port are put there.
    signals: Option<&'a Path>,
}

impl<'a> Options<'a> {
    /// Reads the words of the command line; `None` if one is unknown.
    pub(crate) fn parse(words: &[&'a str]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--without-groups" => options.without_groups = true,
                "--self" => options.signals = Some(Path::new(*words.next()?)),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Serves connections to this socket, one after the other, until it is asked to end.
pub(crate) fn run(socket: &Path, options: &Options<'_>) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let listener = UnixListener::bind(socket)
        .map_err(|error| format!("no socket can be made at {}: {error}", socket.display()))?;
    listener.set_nonblocking(true)?;
    sys::signals::forget_inherited();
    sys::descriptors::keep_from_commands()?;
    // Orphans of commands come here and not to the machine's init, as they do in a guest.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let groups = if options.without_groups { None } else { groups() };
    let signals = options.signals.map(take_self_signals).transpose()?.unwrap_or_default();
    let source = Source::Listener(OwnedFd::from(listener));
    let setup = Setup { source, groups, signals, owns_machine: false, started };
    let result = Agent::new(setup).map_err(Into::into).and_then(Agent::serve);
    // It is gone if the directory is: fine.
    let _ = fs::remove_file(socket);
    result
}

fn take_self_signals(directory: &Path) -> io::Result<Sources> {
    let (sources, port) = Sources::new(0, &directory.join("self"));
    // Under its name only when it is whole.
    let partial = directory.join("port.partial");
    fs::write(&partial, port.unwrap_or(0).to_string())?;
    fs::rename(partial, directory.join("port"))?;
    Ok(sources)
}

/// Prefix of the directories of these agents; their process id follows.
const PREFIX: &str = "hutch-agent-";

/// Control groups below the one that this process is in, if that is possible.
fn groups() -> Option<Groups> {
    let own = group::own_directory()?;
    remove_abandoned(&own);
    let root = own.join(format!("{PREFIX}{}", std::process::id()));
    let made = make(&root);
    if let Err(error) = &made {
        console::say(&format!("without control groups: {}: {error}", root.display()));
        group::remove_empty(&root);
    }
    made.ok()
}

fn make(root: &Path) -> io::Result<Groups> {
    fs::create_dir(root)?;
    Groups::new(root)
}

/// Agents that were killed have left their directories behind.
fn remove_abandoned(own: &Path) {
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            group::remove_empty(&entry.path());
        }
    }
}
