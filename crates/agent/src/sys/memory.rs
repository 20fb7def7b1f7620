//! Keeping the agent's own pages in memory: mlockall(2).

use std::io;

/// Locks every page that the process has now, so that a guest without memory cannot stop the agent by
/// dropping its code from the page cache.
pub(crate) fn lock_present() -> io::Result<()> {
    // SAFETY: takes a number only.
    let result = unsafe { libc::mlockall(libc::MCL_CURRENT) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
