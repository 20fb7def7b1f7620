//! Waiting for a descriptor.
#![expect(unsafe_code, reason = "tokio has no safe form of it")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets a task wait until this descriptor is readable.
pub(super) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always names the same open description, and closes it only when it is dropped, which is when
    // the AsyncFd that owns it from here on is.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    registered.map_err(io::Error::from)
}
