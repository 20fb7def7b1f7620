//! The launcher: two processes, one outside the jail and one that becomes its inhabitant.
//!
//! ```text
//!  outside (root, stays)                      inside (root, then the unprivileged user, then the program)
//!  open files, make memory and socket
//!  make the cgroup, set its limits
//!  clone into new namespaces ───────────────▶ waits
//!  make it the first to be killed ─ go ─────▶ cgroup and its namespace, empty root, user namespace
//!  write its uid and gid map ◀──── ready ────
//!                            ──── mapped ───▶ uid, capabilities, limits, descriptors, seccomp
//!  hears the pipe close      ◀───────────────  execute (the pipe is close-on-exec)
//!  report, end
//! ```
//!
//! When anything fails, inside says what and ends, or finds the pipe closed and ends; outside kills it, removes
//! cgroup and socket and reports. When outside itself is killed, what it made is found by the sandbox's id.

mod descriptors;
mod failure;
mod inside;
mod outside;
mod sys;

pub(crate) use failure::failed;
pub(crate) use outside::launch;
