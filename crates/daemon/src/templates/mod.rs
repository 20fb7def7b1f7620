//! Templates: machines that were booted once and saved, so that a sandbox begins as a copy of one and not with a boot.
//!
//! ```text
//!           wanted                 saved                      not needed any more
//!  (none) ---------> `building` ----------> `ready` ----------------------------> `removing` ---> (none)
//!     ^                  |                     |
//!     +---- undone ------+                     +-- cannot be used: rejected, removed like the rest
//! ```
//!
//! There is one for each image, size of memory and size of disk, of each guest kernel and agent; the engine says by
//! which key it is found. The row is there before the first file and until after the last. A template is needed while
//! a sandbox, a snapshot or a prepared machine is stored as the difference to it: then it is not removed.
//!
//! One is made at a time, in the background and not while somebody waits for a create. Whoever needs one that is not
//! there yet boots instead.

mod registry;

mod make;

mod garbage;

mod start;

#[cfg(test)]
mod tests;

pub(crate) use garbage::keep;
pub(crate) use make::run;
pub(crate) use registry::{Recipe, Templates, Wanted};
pub(crate) use start::take_over;
