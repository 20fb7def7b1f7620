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
use crate::sys;

/// Serves connections to this socket, one after the other, until it is asked to end.
pub(crate) fn run(socket: &Path, with_groups: bool) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let listener = UnixListener::bind(socket)
        .map_err(|error| format!("no socket can be made at {}: {error}", socket.display()))?;
    listener.set_nonblocking(true)?;
    sys::signals::forget_inherited();
    sys::descriptors::keep_from_commands()?;
    // Orphans of commands come here and not to the machine's init, as they do in a guest.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let groups = if with_groups { groups() } else { None };
    let setup = Setup { source: Source::Listener(OwnedFd::from(listener)), groups, owns_machine: false, started };
    let result = Agent::new(setup).map_err(Into::into).and_then(Agent::serve);
    // It is gone if the directory is: fine.
    let _ = fs::remove_file(socket);
    result
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
