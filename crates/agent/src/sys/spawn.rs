//! Starting a program: clone3(2) with `CLONE_VM | CLONE_VFORK`, so that no page table is copied, straight into
//! the control group of the command, so that nothing of it ever runs outside.
//!
//! The child runs on a stack of its own in the agent's memory while the thread that called sleeps. It makes
//! system calls and nothing else: no allocation, no lock, no panic. What it cannot do it writes into the
//! [`Attempt`] that both see, and exits.
//!
//! posix_spawn would do the same, but puts a child into a control group only from glibc 2.38 on, and
//! `std::process::Command` copies the page tables as soon as anything is to be done between.

use std::arch::asm;
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// What to start and as what. Everything is prepared: the child only executes it.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// Paths to try in order, as execvp(3) does.
    pub(crate) candidates: &'a [CString],
    /// Arguments, the program's name first.
    pub(crate) argv: &'a [CString],
    /// `NAME=value`.
    pub(crate) env: &'a [CString],
    /// Absolute working directory.
    pub(crate) cwd: &'a CString,
    /// Whether it must be entered; `/` does as well otherwise.
    pub(crate) cwd_required: bool,
    /// User, group and further groups, if not those of the agent.
    pub(crate) identity: Option<Identity<'a>>,
    /// Standard input, output and error.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// A descriptor that the child keeps under the same number.
    pub(crate) keep: Option<BorrowedFd<'a>>,
    /// Directory of the control group.
    pub(crate) group: Option<BorrowedFd<'a>>,
}

/// Who the child becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    /// User.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Further groups.
    pub(crate) groups: &'a [u32],
}

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Making the process.
    Clone,
    /// Giving it its descriptors.
    Descriptors,
    /// Becoming the user.
    Identity,
    /// Entering the working directory.
    WorkingDirectory,
    /// Executing the program.
    Execute,
}

/// Why a program was not started. No process is left of it.
#[derive(Debug)]
pub(crate) struct SpawnError {
    /// The step.
    pub(crate) step: Step,
    /// What the kernel said.
    pub(crate) source: io::Error,
}

/// Bytes of the child's stack; the child needs some hundred.
const STACK: usize = 64 << 10;

/// Starts programs, one at a time.
#[derive(Debug)]
pub(crate) struct Spawner {
    stack: Box<[u128]>,
}

/// What parent and child both see.
struct Attempt {
    candidates: Vec<*const c_char>,
    /// One free place, then the arguments and a null: the free place is for the shell of a program without `#!`.
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: *const c_char,
    cwd_required: bool,
    uid: u32,
    gid: u32,
    groups: *const u32,
    group_count: usize,
    becomes: bool,
    stdio: [i32; 3],
    keep: i32,
    empty_mask: u64,
    failed: Option<Step>,
    error: i32,
}

/// `struct clone_args` of the kernel, version 2.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// `CLONE_INTO_CGROUP` of the kernel.
const INTO_CGROUP: u64 = 0x2_0000_0000;
/// `CLONE_CLEAR_SIGHAND` of the kernel.
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;

impl Spawner {
    /// Takes memory for the child's stack.
    pub(crate) fn new() -> Self {
        Self { stack: vec![0; STACK / size_of::<u128>()].into_boxed_slice() }
    }

    /// Starts the program in a session of its own; returns its process id once it executes.
    pub(crate) fn spawn(&mut self, plan: &Plan<'_>) -> Result<i32, SpawnError> {
        let mut attempt = Attempt::new(plan);
        let group = plan.group.map_or(0, |group| group.as_raw_fd() as u64);
        let arguments = CloneArguments {
            flags: libc::CLONE_VM as u64
                | libc::CLONE_VFORK as u64
                | CLEAR_SIGHAND
                | if plan.group.is_some() { INTO_CGROUP } else { 0 },
            exit_signal: libc::SIGCHLD as u64,
            stack: self.stack.as_mut_ptr() as u64,
            stack_size: STACK as u64,
            cgroup: group,
            ..CloneArguments::default()
        };
        // SAFETY: the stack is memory of our own that nothing else uses while this thread sleeps; `attempt`
        // and everything that it points to (all borrowed from `plan`) live until after the call, during which
        // the child has executed or ended.
        let result = unsafe { clone_onto_stack(&arguments, &raw mut attempt) };
        if result < 0 {
            let source = io::Error::from_raw_os_error(-result as i32);
            return Err(SpawnError { step: Step::Clone, source });
        }
        let pid = result as i32;
        match attempt.failed {
            None => Ok(pid),
            Some(step) => {
                let mut status = 0;
                // SAFETY: `status` is memory for the status; the child exits at once, and is reaped here so
                // that nobody takes its status for that of a command.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                Err(SpawnError { step, source: io::Error::from_raw_os_error(attempt.error) })
            }
        }
    }
}

impl Attempt {
    fn new(plan: &Plan<'_>) -> Self {
        let pointers = |texts: &[CString], before: usize| {
            let mut pointers = vec![ptr::null(); before];
            pointers.extend(texts.iter().map(|text| text.as_ptr()));
            pointers.push(ptr::null());
            pointers
        };
        let identity = plan.identity.unwrap_or(Identity { uid: 0, gid: 0, groups: &[] });
        Self {
            candidates: plan.candidates.iter().map(|path| path.as_ptr()).collect(),
            argv: pointers(plan.argv, 1),
            env: pointers(plan.env, 0),
            cwd: plan.cwd.as_ptr(),
            cwd_required: plan.cwd_required,
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups.as_ptr(),
            group_count: identity.groups.len(),
            becomes: plan.identity.is_some(),
            stdio: plan.stdio.map(|fd| fd.as_raw_fd()),
            keep: plan.keep.map_or(-1, |fd| fd.as_raw_fd()),
            empty_mask: 0,
            failed: None,
            error: 0,
        }
    }
}

/// clone3, the child continuing in [`child`] on the stack that the arguments give.
///
/// # Safety
///
/// `arguments` must name a writable stack that nothing else uses, and have `CLONE_VM` and `CLONE_VFORK` set;
/// `attempt` must be fit for [`child`].
unsafe fn clone_onto_stack(arguments: *const CloneArguments, attempt: *mut Attempt) -> i64 {
    let result: i64;
    // SAFETY: clone3 returns twice. In the parent everything but rax, rcx and r11 is as before. In the child
    // rsp is the top of the new stack, 16-byte aligned, so that the call enters `child` as the ABI wants; it
    // never returns here. r8 and r9 survive the system call.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r9",
            "call r8",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") arguments,
            in("rsi") size_of::<CloneArguments>(),
            in("r8") child as extern "C" fn(*mut Attempt) -> !,
            in("r9") attempt,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// A system call with its error number as the error. The child uses no wrapper of libc that does more: those
/// for identities, for one, would signal the agent's other threads.
macro_rules! call {
    ($number:expr $(, $argument:expr)*) => {{
        // SAFETY: each use passes what the system call wants; see there.
        let result = unsafe { libc::syscall($number $(, $argument)*) };
        if result < 0 { Err(error_number()) } else { Ok(result) }
    }};
}

/// The error number of the last call.
fn error_number() -> i32 {
    // SAFETY: takes nothing.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the address of the calling thread's error number is always valid.
    unsafe { *location }
}

/// What the child does: becomes what the attempt says and executes, or notes what failed and exits.
extern "C" fn child(attempt: *mut Attempt) -> ! {
    // SAFETY: the parent sleeps until this process executes or exits, so nobody else touches the attempt.
    let attempt = unsafe { &mut *attempt };
    let (step, error) = become_command(attempt);
    attempt.failed = Some(step);
    attempt.error = error;
    loop {
        let _ = call!(libc::SYS_exit_group, 127);
    }
}

/// Returns only if something failed.
fn become_command(attempt: &mut Attempt) -> (Step, i32) {
    if let Err(error) = take_descriptors(attempt) {
        return (Step::Descriptors, error);
    }
    if let Err(error) = take_identity(attempt) {
        return (Step::Identity, error);
    }
    let entered = call!(libc::SYS_chdir, attempt.cwd)
        .or_else(|error| if attempt.cwd_required { Err(error) } else { call!(libc::SYS_chdir, c"/".as_ptr()) });
    if let Err(error) = entered {
        return (Step::WorkingDirectory, error);
    }
    (Step::Execute, execute(attempt))
}

fn take_descriptors(attempt: &Attempt) -> Result<(), i32> {
    // Signals: none blocked. The set of the kernel has 64 bits.
    call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const attempt.empty_mask, 0_usize, 8_usize)?;
    call!(libc::SYS_setsid)?;
    for (number, fd) in attempt.stdio.iter().enumerate() {
        // The agent's own 0, 1 and 2 are taken, so that none of these is one of them.
        call!(libc::SYS_dup3, *fd, number, 0)?;
    }
    if attempt.keep >= 0 {
        call!(libc::SYS_fcntl, attempt.keep, libc::F_SETFD, 0)?;
    }
    Ok(())
}

fn take_identity(attempt: &Attempt) -> Result<(), i32> {
    if attempt.becomes {
        call!(libc::SYS_setgroups, attempt.group_count, attempt.groups)?;
        call!(libc::SYS_setresgid, attempt.gid, attempt.gid, attempt.gid)?;
        call!(libc::SYS_setresuid, attempt.uid, attempt.uid, attempt.uid)?;
    }
    Ok(())
}

/// execvp(3): tries each candidate; returns the error that tells most.
fn execute(attempt: &mut Attempt) -> i32 {
    let mut error = libc::ENOENT;
    let [free, name, ..] = attempt.argv.as_mut_slice() else { return libc::EINVAL };
    let (free, name): (*mut _, *mut _) = (free, name);
    for path in &attempt.candidates {
        let Err(mut failed) = call!(libc::SYS_execve, *path, name, attempt.env.as_ptr()) else { continue };
        if failed == libc::ENOEXEC {
            failed = execute_in_shell(*path, free, name, attempt.env.as_ptr());
        }
        match failed {
            libc::ENOENT | libc::ENOTDIR => {}
            // A candidate later in the path may be permitted.
            libc::EACCES => error = failed,
            _ => return failed,
        }
    }
    error
}

/// A program that has no `#!` is a text for the shell. Returns the error number.
fn execute_in_shell(
    path: *const c_char,
    free: *mut *const c_char,
    name: *mut *const c_char,
    env: *const *const c_char,
) -> i32 {
    let shell = c"/bin/sh".as_ptr();
    // SAFETY: the first two places of the attempt's arguments, which nobody else touches.
    unsafe { free.write(shell) };
    // SAFETY: see above.
    let told = unsafe { name.replace(path) };
    let failed = call!(libc::SYS_execve, shell, free, env).err();
    // SAFETY: see above.
    unsafe { name.write(told) };
    failed.unwrap_or(libc::ENOEXEC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::AsFd;

    fn texts(texts: &[&str]) -> Vec<CString> {
        texts.iter().map(|text| CString::new(*text).unwrap()).collect()
    }

    /// Starts it with output to a pipe; what it wrote, or the step and error number.
    fn run(candidates: &[&str], argv: &[&str], cwd: &str) -> Result<String, (Step, i32)> {
        let (mut reader, writer) = io::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let plan = Plan {
            candidates: &texts(candidates),
            argv: &texts(argv),
            env: &texts(&["A=b"]),
            cwd: &CString::new(cwd).unwrap(),
            cwd_required: cwd != "/no/home",
            identity: None,
            stdio: [null.as_fd(), writer.as_fd(), writer.as_fd()],
            keep: None,
            group: None,
        };
        let pid = Spawner::new().spawn(&plan).map_err(|error| (error.step, error.source.raw_os_error().unwrap()))?;
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let mut status = 0;
        // SAFETY: waits for the test's own child.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        Ok(text)
    }

    #[test]
    fn a_program_runs_with_its_arguments_environment_and_directory() {
        let text = run(&["/nowhere/sh", "/bin/sh"], &["sh", "-c", "echo $0 $A $PWD; pwd"], "/usr");
        assert_eq!(text.unwrap(), "sh b /usr\n/usr\n");
        let text = run(&["/bin/sh"], &["sh", "-c", "pwd"], "/no/home");
        assert_eq!(text.unwrap(), "/\n", "a home that is not there is no reason not to start");
    }

    #[test]
    fn what_fails_is_told_apart() {
        assert_eq!(run(&["/bin/sh"], &["sh"], "/nowhere"), Err((Step::WorkingDirectory, libc::ENOENT)));
        assert_eq!(run(&["/nowhere"], &["x"], "/"), Err((Step::Execute, libc::ENOENT)));
        assert_eq!(run(&["/etc/passwd", "/nowhere"], &["x"], "/"), Err((Step::Execute, libc::EACCES)));
        assert_eq!(run(&[], &["x"], "/"), Err((Step::Execute, libc::ENOENT)));
    }

    #[test]
    fn a_text_without_interpreter_line_runs_in_the_shell() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        std::fs::write(&path, "echo \"$0 $1\"\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(run(&[path], &["script", "one"], "/"), Ok(format!("{path} one\n")));
    }
}
