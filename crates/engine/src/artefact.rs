//! What exists on the host because of a sandbox, found by looking at the host.

use std::path::PathBuf;

use hutch_units::SandboxId;
use serde::Serialize;

/// One thing on the host that an engine made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Artefact {
    /// What sort of thing it is.
    pub kind: ArtefactKind,
    /// Where it is: a path, or `pid 4711` for a process.
    pub name: String,
    /// The sandbox whose name it bears; `None` when it bears none, which makes it an orphan.
    pub sandbox: Option<SandboxId>,
}

/// The sorts of things that an engine makes on the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ArtefactKind {
    /// A process, by its id and its start time (clock ticks after boot, field 22 of `/proc/<pid>/stat`),
    /// so that a later process with the same id is not taken for it.
    Process {
        /// Process id in the host's own pid namespace.
        pid: u32,
        /// Start time in clock ticks after boot.
        start_time: u64,
    },
    /// A cgroup directory.
    Cgroup {
        /// The directory.
        path: PathBuf,
    },
    /// A socket on which the guest's agent or its kernel is reached.
    Socket {
        /// The socket.
        path: PathBuf,
    },
    /// What a guest printed on its console, kept when it ended.
    ConsoleLog {
        /// The file.
        path: PathBuf,
    },
}
