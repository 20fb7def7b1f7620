//! One task for each sandbox: it alone changes the sandbox, one change after the other.
//!
//! ```text
//!  create ------------------> Create --+
//!                                      |  running           asked, expired
//!  start of the daemon:                v                        |
//!    running, has a record -> Adopt -> Serve -------------------+--> Destroy -> clean -> destroyed
//!    creating --------------> Undo     |  ^                     |
//!    destroying -------------> Destroy |  | connection lost     |
//!    ended, not clean -------> Clean   |  +-- Adopt <-----------+
//!                                      | machine died
//!                                      +--------------> Fail -> clean -> failed
//!
//!  Serve --> Pause ----> Hold           pausing -> FinishPause: Hold if it was saved whole, else Serve or Fail
//!    ^                    |             resuming -> FinishResume: Resume, or Serve what runs already
//!    +----- Resume <------+             paused, forking, error -> Hold
//!
//!  Take: a snapshot, from Serve or Hold and back to it
//!  Restore: Serve or Hold -> Resume with another saved machine
//! ```
//!
//! Before anything is made on the host, the row that owns it is committed; the row lets go of its slot, and by
//! that of everything on the host, only after all of it is gone. Every step can be repeated. So a daemon that was
//! killed anywhere finds in the row all it needs to go on: what was half made is undone, what lives is adopted,
//! what was being taken down is taken down.
//!
//! Others talk to the task through its [`Handle`]: they send [`Command`]s and look at the latest [`Snapshot`],
//! which is never ahead of the store. Commands and files do not pass through the task: they use the machine in the
//! snapshot.

mod handle;
mod plan;
mod task;

mod adopt;
mod clean;
mod create;

mod wish;

mod due;

mod pause;
mod resume;

mod begin;
mod restore;
mod take;

#[cfg(test)]
mod tests;

pub(crate) use handle::{Change, Command, Handle, Running, Taken};
pub(crate) use pause::ASKED;
pub(crate) use plan::Plan;
pub(crate) use task::{Beginning, ended, spawn};
