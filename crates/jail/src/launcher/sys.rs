//! The system calls that neither the standard library nor rustix has in a safe form.
#![expect(unsafe_code, reason = "fork, exec and descriptors by number have no safe form")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use rustix::thread::UnshareFlags;

/// Which of the two processes we are after [`fork_into_namespaces`].
#[derive(Debug)]
pub(super) enum Fork {
    /// The caller, with the id of the new process.
    Outside(u32),
    /// The new process.
    Inside,
}

/// The namespaces that a new process gets at its birth.
const NAMESPACES: i32 =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// Forks into new mount, pid, net, ipc and uts namespaces, and into the cgroup whose directory is given.
///
/// The caller must have one thread only: then the new process has all of its memory in a consistent state and may
/// do whatever the caller may.
pub(super) fn fork_into_namespaces(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Fork> {
    // CLONE_INTO_CGROUP is beyond the 32 bits of the other flags.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut arguments = std::mem::MaybeUninit::<libc::clone_args>::zeroed();
    // SAFETY: all of its fields are integers, for which zero is a value.
    let arguments = unsafe { arguments.assume_init_mut() };
    arguments.flags = u64::from(NAMESPACES.cast_unsigned()) | if cgroup.is_some() { INTO_CGROUP } else { 0 };
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    arguments.cgroup = cgroup.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs()));
    // SAFETY: without a stack and without CLONE_VM this is fork: the new process runs on a copy of our memory. The
    // launcher has a single thread, so no lock is held by a thread that does not exist there.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, ptr::from_ref(arguments), size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Inside),
        pid => Ok(Fork::Outside(u32::try_from(pid).expect("the kernel returns a process id"))),
    }
}

/// Leaves namespaces for new ones.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: only unsharing the table of descriptors is unsound, and no caller asks for that; the process has a
    // single thread, which no other one can be surprised by.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Makes `number` another name of `fd`, not close-on-exec; whatever had that number is closed.
///
/// The caller says that nothing in this process owns `number` or uses it later.
pub(super) fn place(fd: BorrowedFd<'_>, number: u32) -> io::Result<()> {
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: dup2 touches no memory. `number` is below all descriptors that this process owns by then (they were
    // raised), except the standard streams, which it no longer uses.
    let result = unsafe { libc::dup2(fd.as_raw_fd(), number) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Marks all descriptors from `first` to `last` close-on-exec.
pub(super) fn close_on_exec(first: u32, last: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: setting a flag of descriptors touches no memory and closes nothing now.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_CLOEXEC) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Every signal as it is at a process's birth: default action, not blocked.
pub(super) fn reset_signals() -> io::Result<()> {
    for signal in 1..=64 {
        // SAFETY: the default action runs no code of ours. SIGKILL, SIGSTOP and the two that the C library keeps for
        // itself cannot be changed, which is as well: they have the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let empty = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is initialized: all zero is the empty set.
    let result = unsafe { libc::sigprocmask(libc::SIG_SETMASK, empty.as_ptr(), ptr::null_mut()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Turns address space randomization off for the program to be executed.
pub(super) fn no_randomization() -> io::Result<()> {
    let wanted = libc::c_ulong::from(libc::ADDR_NO_RANDOMIZE.unsigned_abs());
    // SAFETY: personality changes how later mappings are placed, none that exist.
    let result = unsafe { libc::personality(wanted) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Replaces this process by the program behind `program`. Returns only when that failed.
pub(super) fn execute(program: BorrowedFd<'_>, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: the path is an empty string, and both arrays end with a null pointer and point to strings that live
    // until the call returns or this process's memory is replaced.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Ends this process at once, without running what the standard library would at an exit.
pub(super) fn leave(status: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory of ours.
    unsafe { libc::_exit(status) }
}
