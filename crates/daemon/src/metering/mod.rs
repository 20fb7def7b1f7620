//! What sandboxes use: read from the host, written to the ledger ([`crate::store::UsageRow`]), summed up for those who ask.
//!
//! ```text
//!  every second    which machines came, which went                 no read, no write
//!  every 5 s       processor time of each machine                  one read each, of a file that stays open
//!  every 10 s      the same and the size of each disk, written     one transaction for all
//!  at an end       processor time, before the cgroup goes          by the owner of the sandbox
//! ```
//!
//! Time needs no checkpoint while the daemon lives: segments begin and end with the states of the store. A checkpoint
//! says that the machine was still there, for the case that it is found gone.

mod counter;
mod meter;
mod sum;

#[cfg(test)]
mod tests;

pub(crate) use counter::Counter;
pub(crate) use meter::{Meter, last_reading, look, refresh};
pub(crate) use sum::{Span, sum};
