//! The system calls that a jailed kernel and its children may make, as a table with a reason for each.
//!
//! Whatever is not here, or has other arguments, fails with EPERM and changes nothing. Killing the caller
//! instead would end a whole sandbox for a mistake; and the children that run guest programs install a filter
//! of their own that traps every call of a guest program to the guest's kernel, which must win over ours, as
//! a trap wins over an error number.
//!
//! Nothing here opens a file by name, makes a socket that could reach anything, or touches another process
//! than those of the same pid namespace: all files arrive as descriptors.

/// One system call and when it is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub number: libc::c_long,
    /// The arguments with which it is allowed.
    pub when: When,
    /// What the kernel needs it for.
    pub reason: &'static str,
}

/// The arguments with which a system call is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Any.
    Always,
    /// The argument's low 32 bits are one of these.
    OneOf {
        /// Which argument, from 0.
        argument: u8,
        /// The values.
        values: &'static [u32],
    },
    /// None of these bits of the argument's low 32 are set.
    Without {
        /// Which argument, from 0.
        argument: u8,
        /// The bits.
        bits: u32,
    },
    /// The argument is a null pointer.
    Null {
        /// Which argument, from 0.
        argument: u8,
    },
}

use When::{Always, Null, OneOf, Without};

const fn allow(name: &'static str, number: libc::c_long, when: When, reason: &'static str) -> Allowed {
    Allowed { name, number, when, reason }
}

/// `AT_EMPTY_PATH`: the file is the descriptor itself.
const EMPTY_PATH: u32 = 0x1000;
/// `MFD_HUGETLB`: from the host's huge pages, which no cgroup of ours counts.
const MFD_HUGETLB: u32 = 0x0004;
/// `MAP_HUGETLB`, for the same reason.
const MAP_HUGETLB: u32 = 0x4_0000;
/// `PER_LINUX | ADDR_NO_RANDOMIZE`: what the launcher has set, and what the kernel asks for again.
const NO_RANDOMIZE: u32 = 0x004_0000;
/// Every flag of `clone` but those that share with, or signal, the caller: no namespaces, no tracing, no
/// other parent, no descriptor of the process.
const CLONE_REFUSED: u32 = !(0xff // the signal at its end
    | 0x0000_0100 // CLONE_VM
    | 0x0000_0200 // CLONE_FS
    | 0x0000_0400 // CLONE_FILES
    | 0x0000_0800 // CLONE_SIGHAND
    | 0x0000_4000 // CLONE_VFORK
    | 0x0001_0000 // CLONE_THREAD
    | 0x0004_0000 // CLONE_SYSVSEM
    | 0x0008_0000 // CLONE_SETTLS
    | 0x0010_0000 // CLONE_PARENT_SETTID
    | 0x0020_0000 // CLONE_CHILD_CLEARTID
    | 0x0040_0000 // CLONE_DETACHED, which does nothing
    | 0x0080_0000 // CLONE_UNTRACED
    | 0x0100_0000); // CLONE_CHILD_SETTID

/// Answered with ENOSYS instead of EPERM, so that the C library falls back to `clone`: its flags lie in memory,
/// where a filter cannot see them.
pub(crate) const NOT_IMPLEMENTED: libc::c_long = libc::SYS_clone3;

/// The table.
pub const ALLOWLIST: &[Allowed] = &[
    // Descriptors that the launcher opened, or that come from calls below.
    allow("read", libc::SYS_read, Always, "agent channel, helper threads' pipes, signal descriptor"),
    allow("write", libc::SYS_write, Always, "agent channel, console, helper threads' pipes"),
    allow("pread64", libc::SYS_pread64, Always, "the state of a saved machine"),
    allow("pwrite64", libc::SYS_pwrite64, Always, "the machine's own state, to be saved; files that were handed in"),
    allow("preadv", libc::SYS_preadv, Always, "block devices"),
    allow("pwritev", libc::SYS_pwritev, Always, "the writable block device; bounded by the file size limit"),
    allow("lseek", libc::SYS_lseek, Always, "size of a block device's file; end of guest memory's file"),
    allow("fstat", libc::SYS_fstat, Always, "kind and size of an inherited descriptor"),
    allow(
        "newfstatat",
        libc::SYS_newfstatat,
        OneOf { argument: 3, values: &[EMPTY_PATH] },
        "what the C library makes of fstat",
    ),
    allow("ftruncate", libc::SYS_ftruncate, Always, "size of guest memory's file; bounded by the file size limit"),
    allow(
        "fallocate",
        libc::SYS_fallocate,
        // KEEP_SIZE with PUNCH_HOLE or with ZERO_RANGE.
        OneOf { argument: 1, values: &[0x03, 0x11] },
        "discard and zeroing on the writable block device",
    ),
    allow("fdatasync", libc::SYS_fdatasync, Always, "flush of the writable block device"),
    allow("close", libc::SYS_close, Always, "connections and pipes that ended"),
    allow("close_range", libc::SYS_close_range, Always, "a child keeps none of the kernel's descriptors"),
    allow("dup2", libc::SYS_dup2, Always, "a child's socket becomes its descriptor 0"),
    allow(
        "fcntl",
        libc::SYS_fcntl,
        // F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETOWN, F_SETSIG, F_DUPFD_CLOEXEC,
        // F_ADD_SEALS
        OneOf { argument: 1, values: &[0, 1, 2, 3, 4, 5, 6, 8, 10, 1030, 1033] },
        "close-on-exec, non-blocking, signal-driven input, the seal on the children's program",
    ),
    allow("eventfd2", libc::SYS_eventfd2, Always, "wakes the interrupt loop"),
    allow(
        "socketpair",
        libc::SYS_socketpair,
        OneOf { argument: 0, values: &[1] },
        "to and from children and helper threads: unix sockets without a name",
    ),
    allow("sendmsg", libc::SYS_sendmsg, Always, "hands guest memory to a child"),
    allow("recvmsg", libc::SYS_recvmsg, Always, "takes guest memory in a child"),
    allow("sendto", libc::SYS_sendto, Null { argument: 4 }, "agent channel; to the connected peer only"),
    allow("recvfrom", libc::SYS_recvfrom, Null { argument: 4 }, "agent channel"),
    allow("accept4", libc::SYS_accept4, Always, "the service connects to the agent's socket"),
    allow("epoll_create", libc::SYS_epoll_create, Always, "interrupts of devices"),
    allow("epoll_ctl", libc::SYS_epoll_ctl, Always, "interrupts of devices"),
    allow("epoll_wait", libc::SYS_epoll_wait, Always, "interrupts of devices"),
    allow("poll", libc::SYS_poll, Always, "helper threads wait"),
    // Memory.
    allow("mmap", libc::SYS_mmap, Without { argument: 3, bits: MAP_HUGETLB }, "guest memory, stacks"),
    allow("munmap", libc::SYS_munmap, Always, "guest memory, stacks"),
    allow("mprotect", libc::SYS_mprotect, Always, "guards of stacks, the C library's start"),
    allow(
        "madvise",
        libc::SYS_madvise,
        // MADV_DONTNEED, MADV_REMOVE, MADV_POPULATE_WRITE
        OneOf { argument: 2, values: &[4, 9, 23] },
        "gives free guest memory back; copies pages ahead that a saved machine is known to write",
    ),
    allow("brk", libc::SYS_brk, Always, "the C library's allocator before the kernel's own"),
    allow("memfd_create", libc::SYS_memfd_create, Without { argument: 1, bits: MFD_HUGETLB }, "the children's program"),
    // Processes and threads of this jail.
    allow("clone", libc::SYS_clone, Without { argument: 0, bits: CLONE_REFUSED }, "children and helper threads"),
    allow(
        "execveat",
        libc::SYS_execveat,
        OneOf { argument: 4, values: &[EMPTY_PATH] },
        "the kernel itself, once, and the children's program, by descriptor",
    ),
    allow("exit", libc::SYS_exit, Always, "a thread ends"),
    allow("exit_group", libc::SYS_exit_group, Always, "a process ends"),
    allow("wait4", libc::SYS_wait4, Always, "reaps children"),
    allow("kill", libc::SYS_kill, Always, "ends and interrupts children; reaches only this pid namespace"),
    allow("tgkill", libc::SYS_tgkill, Always, "interrupts a thread; reaches only this pid namespace"),
    allow("getpid", libc::SYS_getpid, Always, "owner of signal-driven input"),
    allow("gettid", libc::SYS_gettid, Always, "owner of the timer"),
    allow("setsid", libc::SYS_setsid, Always, "asked again at the kernel's start"),
    allow("set_tid_address", libc::SYS_set_tid_address, Always, "the C library's start"),
    allow("set_robust_list", libc::SYS_set_robust_list, Always, "the C library's threads"),
    allow("rseq", libc::SYS_rseq, Always, "the C library's threads"),
    allow(
        "futex",
        libc::SYS_futex,
        // WAIT and WAKE, shared and private; WAIT_BITSET private, on either clock. Nothing with priorities or queues.
        OneOf { argument: 1, values: &[0, 1, 0x80, 0x81, 0x89, 0x109, 0x189] },
        "hands the processor to a child and waits for it; the C library's locks",
    ),
    allow(
        "arch_prctl",
        libc::SYS_arch_prctl,
        // ARCH_SET_GS, ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_GS
        OneOf { argument: 0, values: &[0x1001, 0x1002, 0x1003, 0x1004] },
        "thread-local storage of guest programs and of the C library",
    ),
    allow(
        "prctl",
        libc::SYS_prctl,
        // PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_NO_NEW_PRIVS
        OneOf { argument: 0, values: &[1, 15, 38] },
        "a child dies with its kernel, has a name, may install its filter",
    ),
    allow(
        "seccomp",
        libc::SYS_seccomp,
        // SECCOMP_SET_MODE_FILTER
        OneOf { argument: 0, values: &[1] },
        "the children's own, narrower filter",
    ),
    allow(
        "personality",
        libc::SYS_personality,
        OneOf { argument: 0, values: &[NO_RANDOMIZE] },
        "asked again at the kernel's start",
    ),
    allow("prlimit64", libc::SYS_prlimit64, Null { argument: 2 }, "reads limits"),
    allow("uname", libc::SYS_uname, Always, "the host's release for the guest's /proc/cpuinfo"),
    allow("getrandom", libc::SYS_getrandom, Always, "entropy for the guest"),
    // Signals and time.
    allow("rt_sigaction", libc::SYS_rt_sigaction, Always, "interrupts and faults arrive as signals"),
    allow("rt_sigprocmask", libc::SYS_rt_sigprocmask, Always, "the guest's interrupt flag"),
    allow("rt_sigreturn", libc::SYS_rt_sigreturn, Always, "end of an interrupt"),
    allow("sigaltstack", libc::SYS_sigaltstack, Always, "interrupt stack"),
    allow("signalfd4", libc::SYS_signalfd4, Always, "interrupts of devices"),
    allow("timer_create", libc::SYS_timer_create, Always, "the guest's clock event"),
    allow("timer_settime", libc::SYS_timer_settime, Always, "the guest's clock event"),
    allow("clock_gettime", libc::SYS_clock_gettime, Always, "the guest's clock where the host has no vDSO clock"),
    allow("clock_nanosleep", libc::SYS_clock_nanosleep, Always, "the idle loop; the filter check at start"),
    allow("restart_syscall", libc::SYS_restart_syscall, Always, "a wait goes on after a stop"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn find(number: libc::c_long) -> Option<&'static Allowed> {
        ALLOWLIST.iter().find(|allowed| allowed.number == number)
    }

    #[test]
    fn each_call_stands_once_and_has_a_reason() {
        for (position, allowed) in ALLOWLIST.iter().enumerate() {
            assert!(!allowed.reason.is_empty(), "{}", allowed.name);
            let again = ALLOWLIST.iter().skip(position + 1).any(|other| other.number == allowed.number);
            assert!(!again, "{} stands twice", allowed.name);
        }
    }

    #[test]
    fn nothing_that_names_a_file_reaches_out_or_rules_is_allowed() {
        let refused = [
            libc::SYS_open,
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_creat,
            libc::SYS_open_by_handle_at,
            libc::SYS_execve,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_open,
            libc::SYS_pidfd_getfd,
            libc::SYS_mount,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_clone3,
            libc::SYS_setuid,
            libc::SYS_setresuid,
            libc::SYS_setgroups,
            libc::SYS_capset,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_ioctl,
            libc::SYS_mknod,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_syslog,
            libc::SYS_iopl,
            libc::SYS_modify_ldt,
            libc::SYS_shmget,
            libc::SYS_msgget,
            libc::SYS_semget,
            libc::SYS_mq_open,
            libc::SYS_inotify_init1,
            libc::SYS_fanotify_init,
            libc::SYS_memfd_secret,
            libc::SYS_mlockall,
            libc::SYS_sched_setscheduler,
            libc::SYS_setpriority,
            libc::SYS_prlimit64 + 0x4000_0000, // the same calls by their x32 numbers
        ];
        for number in refused {
            assert_eq!(find(number), None);
        }
    }

    #[test]
    fn clone_makes_no_namespace() {
        let clone = find(libc::SYS_clone).unwrap();
        let Without { argument: 0, bits } = clone.when else { panic!("{clone:?}") };
        for flag in [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
            libc::CLONE_PTRACE,
            libc::CLONE_PARENT,
        ] {
            assert_ne!(bits & flag.cast_unsigned(), 0, "{flag:#x}");
        }
        // What the kernel does use: children, the check at its start, threads of the C library.
        for used in [0x4100 | 17, 0x4100, 0x003d_0f00] {
            assert_eq!(bits & used, 0, "{used:#x}");
        }
    }
}
