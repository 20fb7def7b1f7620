//! When a sandbox is idle, what is done about it then, and what a guest asks for itself.
//!
//! Idle is who has nobody: no request, no command that runs, no file on its way in or out, and no work of its own:
//! its processes use less than two per cent of one processor. The decision is a function of the row, the activity, the
//! processor's load and the time, made anew every second from the store, so that there is no timer to be lost. The
//! owner of the sandbox makes it once more before it acts: what came in between counts.

mod policy;
mod watch;
mod window;

pub(crate) use policy::{Decision, Seen, decide};
pub(crate) use watch::watch;
pub(crate) use window::{Window, Work};
