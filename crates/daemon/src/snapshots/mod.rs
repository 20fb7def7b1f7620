//! Snapshots: saved machines with their disks, of users and of forks.
//!
//! ```text
//!  row `creating` -> files written -> row `ready` -> row `deleting` -> nothing begins from it -> files gone -> row gone
//! ```
//!
//! A row is there before the first file and until after the last. Machines that were started from a snapshot have its
//! files open, and paused sandboxes have links of their own to them, so that the only ones a removal waits for are
//! sandboxes that are just being made from it.

pub(crate) mod files;

mod begin;
mod removal;

pub(crate) use begin::{begin, resolve, unusable, verify};
pub(crate) use removal::{remove, remove_stale};
