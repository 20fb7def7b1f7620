//! Descriptors that came from whoever started the agent: close_range(2).

use std::io;

/// Keeps commands from inheriting any but 0, 1 and 2.
pub(crate) fn keep_from_commands() -> io::Result<()> {
    let (first, last) = (3_u32, u32::MAX);
    // SAFETY: takes numbers only, and closes nothing that is in use here: it marks for the next execution.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
