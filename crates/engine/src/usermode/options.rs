//! What the user-mode engine must be told.

use std::path::PathBuf;
use std::time::Duration;

/// What the user-mode engine must be told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of the guest's kernel and boot image; searched for when `None`
    /// ([`crate::guest::GuestFiles::find`]).
    pub guest: Option<PathBuf>,
    /// The program `hutch-jail`; searched for beside the running program and in `/usr/lib/hutch` when `None`.
    pub launcher: Option<PathBuf>,
    /// The directory that holds the state directories of this service's sandboxes, `<data>/sandboxes`. It also
    /// tells this service's cgroups from those of another service on the same host.
    pub sandboxes: PathBuf,
    /// How long a machine may take from the request to the agent's acknowledgement.
    pub start_deadline: Duration,
}

impl Options {
    /// The directory that keeps guest files for saved machines, `<data>/guests`.
    pub fn guests(&self) -> PathBuf {
        self.sandboxes.with_file_name("guests")
    }

    /// How long a start may take unless told otherwise: an idle host needs half a second, a busy one some more.
    pub const START_DEADLINE: Duration = Duration::from_secs(60);

    /// Searches for guest files and launcher, and gives a start [`Self::START_DEADLINE`].
    pub fn new(sandboxes: impl Into<PathBuf>) -> Self {
        Self { guest: None, launcher: None, sandboxes: sandboxes.into(), start_deadline: Self::START_DEADLINE }
    }
}
