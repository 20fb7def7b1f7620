//! Signals as something to read: signalfd(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

/// The signals that the agent takes from a descriptor: a child ended, or somebody wants it to end.
const READ: [libc::c_int; 3] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT];

/// The largest number of a signal.
const LAST: libc::c_int = 64;

/// Gives every signal its default disposition: what whoever started the agent ignored, commands would ignore
/// too.
pub(crate) fn forget_inherited() {
    // `struct sigaction` of the kernel: the default disposition is zero, and so are flags and mask. The call of
    // the C library would leave out the signals that it uses itself.
    let default = [0_u64; 4];
    for signal in 1..=LAST {
        // SAFETY: the action is memory of the kernel's layout that installs no code, and the old one is not asked
        // for. It fails for SIGKILL and the like, which have no other.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<u64>(), 8_usize) };
    }
}

/// Blocks what is read instead of delivered, and `SIGPIPE`, which a closed pipe's error number says better.
/// Returns the descriptor to read from. Must be called before any thread is started.
pub(crate) fn take() -> io::Result<OwnedFd> {
    let read = set(&READ);
    let mut blocked = read;
    // SAFETY: `blocked` is an initialised set.
    unsafe { libc::sigaddset(&raw mut blocked, libc::SIGPIPE) };
    // SAFETY: the set is initialised, and the old mask is not asked for.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const blocked, ptr::null_mut()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // The runtime ignores SIGPIPE, which commands would inherit: blocking it is enough here.
    // SAFETY: the default disposition installs no code.
    if unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the set is initialised.
    let fd = unsafe { libc::signalfd(-1, &raw const read, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Length of what one signal reads as.
pub(crate) const RECORD: usize = size_of::<libc::signalfd_siginfo>();

/// Whether a record says that the process was asked to end.
pub(crate) fn asks_to_end(record: &[u8; RECORD]) -> bool {
    let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
    [libc::SIGTERM, libc::SIGINT].iter().any(|signal| u32::try_from(*signal) == Ok(number))
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `set` is memory for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call before initialised it.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: `set` is an initialised set.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}
