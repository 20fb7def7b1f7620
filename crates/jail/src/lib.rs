//! The jail of one user-mode kernel: what it is made of, as data, and the program that makes it.
//!
//! The guest is assumed to own the kernel's process; the jail is what keeps it from the host. The library
//! says what a jail is ([`specification::Specification`], the seccomp [`allowlist`], the [`cgroup`] layout);
//! the program `hutch-jail` reads one specification from its standard input, starts one process accordingly,
//! prints one [`report::Report`] and ends. `docs/threat-model.md` says what the jail promises.

pub mod allowlist;
pub mod cgroup;
pub mod filter;
pub mod report;
pub mod specification;
