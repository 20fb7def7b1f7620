//! Reaping: wait4(2), which unlike waitid tells what the process had used.

use std::io;

/// A child that ended and is reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reaped {
    /// Its process id, from now on free for others.
    pub(crate) pid: i32,
    /// How it ended.
    pub(crate) status: Status,
    /// What it and the children that it had waited for used.
    pub(crate) usage: Usage,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// With this exit status.
    Exited(i32),
    /// By this signal, perhaps with a core file.
    Signaled(i32, bool),
}

/// What a process used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processor time in user mode, microseconds.
    pub(crate) user_us: u64,
    /// Processor time in the kernel, microseconds.
    pub(crate) system_us: u64,
    /// Largest resident set, bytes.
    pub(crate) max_resident_bytes: u64,
}

/// Reaps one child that has ended, if there is one: of the agent's own, or one that lost its parent.
pub(crate) fn reap() -> io::Result<Option<Reaped>> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to memory of the types that the call fills.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    if pid < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(error) };
    }
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: a struct of integers, zeroed and then filled.
    let usage = unsafe { usage.assume_init() };
    let status = if libc::WIFSIGNALED(status) {
        Status::Signaled(libc::WTERMSIG(status), libc::WCOREDUMP(status))
    } else {
        Status::Exited(libc::WEXITSTATUS(status))
    };
    let microseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    let usage = Usage {
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
        max_resident_bytes: usage.ru_maxrss as u64 * 1024,
    };
    Ok(Some(Reaped { pid, status, usage }))
}
