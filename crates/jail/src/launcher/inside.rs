//! The inner process of a launch: from root of the host to the inhabitant of the jail, in one direction.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use hutch_jail::report::{Failure, Step};
use hutch_jail::specification::{Limits, Specification};
use rustix::fs::Mode;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, UnshareFlags};
use seccompiler::BpfProgram;

use super::descriptors::Opened;
use super::failed;
use super::outside::word;
use super::sys;

/// What the inner process begins with.
#[derive(Debug)]
pub(super) struct Inside<'a> {
    pub(super) specification: &'a Specification,
    pub(super) opened: &'a Opened,
    pub(super) filter: BpfProgram,
    pub(super) from_outside: File,
    pub(super) to_outside: File,
}

/// Becomes the program, or says why not and ends.
pub(super) fn run(mut inside: Inside<'_>) -> ! {
    let Err(failure) = inside.become_the_program();
    let text = serde_json::to_vec(&failure).unwrap_or_default();
    // Nobody is left to be told when this fails.
    inside.to_outside.write_all(&text).ok();
    sys::leave(1)
}

impl Inside<'_> {
    fn become_the_program(&mut self) -> Result<Infallible, Failure> {
        self.wait_for(word::GO)?;
        let joined = self.specification.group.join();
        joined.map_err(|error| failed(Step::Cgroup, "joining the sandbox's cgroup", &error))?;
        // Only now, since the cgroup namespace begins at the cgroup that a process is in.
        unshare(UnshareFlags::NEWCGROUP)?;
        rustix::system::sethostname(b"hutch").map_err(|error| failed(Step::Namespaces, "host name", &error))?;
        enter_empty_root(self.specification).map_err(|(what, error)| failed(Step::Root, what, &error))?;
        // While a limit above the service's own may still be set.
        limit_resources(&self.specification.limits)?;
        // Root's own groups go while that is still allowed; in the user namespace nobody can change groups.
        rustix::thread::set_thread_groups(&[]).map_err(|error| failed(Step::Identity, "groups", &error))?;
        // The last of the namespaces, so that all others belong to the host's root: whatever capability the process
        // might gain in its own user namespace says nothing in them.
        unshare(UnshareFlags::NEWUSER)?;
        self.say(word::READY)?;
        self.wait_for(word::MAPPED)?;
        take_identity(self.specification.uid).map_err(|error| failed(Step::Identity, "uid and gid", &error))?;
        drop_capabilities().map_err(|(what, error)| failed(Step::Capabilities, what, &error))?;
        self.settle().map_err(|error| failed(Step::Execute, "signals, session or descriptors", &error))?;
        self.execute()
    }

    fn wait_for(&mut self, word: u8) -> Result<(), Failure> {
        let mut heard = [0_u8; 1];
        let pipe = |error: &io::Error| failed(Step::Report, "the launcher is gone", error);
        self.from_outside.read_exact(&mut heard).map_err(|error| pipe(&error))?;
        if heard == [word] { Ok(()) } else { Err(pipe(&io::Error::from(io::ErrorKind::InvalidData))) }
    }

    fn say(&mut self, word: u8) -> Result<(), Failure> {
        self.to_outside.write_all(&[word]).map_err(|error| failed(Step::Report, "the launcher is gone", &error))
    }

    /// Session, signals, personality, and every descriptor in its place.
    fn settle(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        rustix::process::umask(Mode::from_raw_mode(0o077));
        sys::reset_signals()?;
        sys::no_randomization()?;
        for (number, fd) in &self.opened.inherited {
            sys::place(fd.as_fd(), *number)?;
        }
        let mut numbers: Vec<u32> = self.opened.inherited.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        let mut next = 0;
        for number in numbers {
            if number > next {
                sys::close_on_exec(next, number - 1)?;
            }
            next = number + 1;
        }
        sys::close_on_exec(next, u32::MAX)
    }

    /// The last steps: from the filter on, hardly anything else than the execution is possible.
    fn execute(&mut self) -> Result<Infallible, Failure> {
        let texts = |texts: &[String]| -> Result<Vec<CString>, Failure> {
            let text = |text: &String| CString::new(text.as_bytes());
            texts.iter().map(text).collect::<Result<_, _>>().map_err(|error| failed(Step::Execute, "arguments", &error))
        };
        let (arguments, environment) = (texts(&self.specification.arguments)?, texts(&self.specification.environment)?);
        rustix::thread::set_no_new_privs(true).map_err(|error| failed(Step::Filter, "no_new_privs", &error))?;
        seccompiler::apply_filter(&self.filter).map_err(|error| failed(Step::Filter, "seccomp", &error))?;
        self.say(word::EXECUTING)?;
        let error = sys::execute(self.opened.program.as_fd(), &arguments, &environment);
        Err(failed(Step::Execute, self.specification.program.display(), &error))
    }
}

fn unshare(flags: UnshareFlags) -> Result<(), Failure> {
    sys::unshare(flags).map_err(|error| failed(Step::Namespaces, format!("{flags:?}"), &error))
}

/// Swaps the root for a read-only file system with nothing in it. The old root is detached with all below it.
fn enter_empty_root(specification: &Specification) -> Result<(), (&'static str, io::Error)> {
    let step = |what: &'static str| move |error: rustix::io::Errno| (what, io::Error::from(error));
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(step("making mounts private"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = c"size=4k,nr_inodes=1,mode=0555";
    let at = specification.mount_point.as_path();
    rustix::mount::mount("none", at, "tmpfs", flags, Some(options)).map_err(step("mounting the empty root"))?;
    rustix::process::chdir(at).map_err(step("entering the empty root"))?;
    // Both names are the same directory: the old root ends up mounted over the new one, and is then unmounted.
    rustix::process::pivot_root(".", ".").map_err(step("swapping the root"))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(step("detaching the old root"))?;
    rustix::process::chdir("/").map_err(step("entering the empty root"))?;
    rustix::mount::mount_remount("/", flags | MountFlags::RDONLY, "").map_err(step("making the root read-only"))
}

fn take_identity(id: u32) -> io::Result<()> {
    let (uid, gid) = (rustix::process::Uid::from_raw(id), rustix::process::Gid::from_raw(id));
    // Before the uid: NO_SETUID_FIXUP and the others need a capability, and keep the ones we still need.
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Every set of every capability, those of kernels newer than this program included.
fn drop_capabilities() -> Result<(), (&'static str, io::Error)> {
    let step = |what: &'static str| move |error: rustix::io::Errno| (what, io::Error::from(error));
    for capability in 0..64 {
        // The first number that does not exist ends the list.
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << capability)) {
            Err(rustix::io::Errno::INVAL) => break,
            other => other.map_err(step("bounding set"))?,
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(step("ambient set"))?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(step("effective, permitted and inheritable set"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("dumpable"))
}

fn limit_resources(limits: &Limits) -> Result<(), Failure> {
    let fixed = [
        (Resource::Core, 0),
        (Resource::Nofile, u64::from(limits.open_files)),
        (Resource::Fsize, limits.file_size.0),
        (Resource::Memlock, 64 << 10),
        (Resource::Stack, 8 << 20),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 4096),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
    ];
    for (resource, value) in fixed {
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        let set = rustix::process::setrlimit(resource, limit);
        set.map_err(|error| failed(Step::ResourceLimits, format!("{resource:?}"), &error))?;
    }
    Ok(())
}
