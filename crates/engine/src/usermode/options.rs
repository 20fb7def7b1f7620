//! What the user-mode engine must be told.

use std::path::PathBuf;
use std::time::Duration;

use crate::guest::GuestFiles;

/// What the user-mode engine must be told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kernel and the boot image.
    pub guest: GuestFiles,
    /// The program `hutch-jail`.
    pub launcher: PathBuf,
    /// The directory that holds the state directories of this service's sandboxes, `<data>/sandboxes`. It also
    /// tells this service's cgroups from those of another service on the same host.
    pub sandboxes: PathBuf,
    /// How long a machine may take from the request to the agent's acknowledgement.
    pub start_deadline: Duration,
}
