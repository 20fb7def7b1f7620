//! Machines that wait for a create: started from a template up to where their agent waits to be told who it is. A
//! create takes one over, with its id and host uid, and has only that last step left.
//!
//! ```text
//!  row in `slots` -> disk, cgroup, process, agent answers -> waits --+--> taken: row in `sandboxes` in its place
//!                          |                                         +--> given up, or its process ended
//!                          +-- failed ----------> everything removed, row gone <--+
//! ```
//!
//! The two rows change in one transaction, so that at every instant one of them owns what is on the host. How many wait
//! follows the demand of the last minute, within bounds; they are made while no create is under way, one at a time.
//! When the daemon stops they are removed, and so is at its start whatever a killed one left.

mod demand;

mod waiting;

mod refill;

pub(crate) use refill::{run, take_over};
pub(crate) use waiting::{Kind, Pool};
