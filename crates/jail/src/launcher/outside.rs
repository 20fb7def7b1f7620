//! The outer process of a launch.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use hutch_jail::allowlist::ALLOWLIST;
use hutch_jail::filter;
use hutch_jail::report::{Failure, Started, Step};
use hutch_jail::specification::Specification;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use seccompiler::BpfProgram;

use super::descriptors::{self, Opened};
use super::failed;
use super::inside::{self, Inside};
use super::sys::{Fork, fork_into_namespaces};

/// The host's memory killer takes a sandbox before any other process of the host.
const OOM_SCORE_ADJUSTMENT: &str = "800";

/// One byte for each thing that one process tells the other.
pub(super) mod word {
    /// To the inside: you are prepared, go on.
    pub(crate) const GO: u8 = b'g';
    /// From the inside: the user namespace is there, map it.
    pub(crate) const READY: u8 = b'r';
    /// To the inside: it is mapped, go on.
    pub(crate) const MAPPED: u8 = b'm';
    /// From the inside: all is done but the execution.
    pub(crate) const EXECUTING: u8 = b'x';
}

/// Starts the process that a specification describes and reports it. On failure, and when nobody hears the report
/// (the service is gone and may never look for this sandbox again), nothing of it is left.
pub(crate) fn launch(
    specification: &Specification,
    began: Instant,
    report: impl FnOnce(Started) -> io::Result<()>,
) -> Result<(), Failure> {
    let filter = filter::compile(ALLOWLIST).map_err(|error| failed(Step::Filter, "the allowlist", &error))?;
    let opened = descriptors::open(specification)?;
    let mut child = None;
    let started = start(specification, &opened, filter, &mut child).and_then(|(pid, start_time)| {
        let microseconds = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let reported = report(Started { pid, start_time, microseconds });
        reported.map_err(|error| failed(Step::Report, "standard output", &error))
    });
    if started.is_err() {
        undo(specification, &opened, child);
    }
    started
}

/// Everything that must be undone on failure. `child` is set once there is a process.
fn start(
    specification: &Specification,
    opened: &Opened,
    filter: BpfProgram,
    child: &mut Option<u32>,
) -> Result<(u32, u64), Failure> {
    let made = specification.group.create(&specification.limits);
    made.map_err(|error| failed(Step::Cgroup, "the sandbox's cgroup", &error))?;
    let ends = Ends::make().map_err(|error| failed(Step::Namespaces, "pipes", &error))?;
    let birthplace = specification.group.birthplace();
    let birthplace = birthplace.map_err(|error| failed(Step::Cgroup, "the sandbox's cgroup", &error))?;
    let forked = fork_into_namespaces(birthplace.as_ref().map(AsFd::as_fd));
    let forked = forked.map_err(|error| failed(Step::Namespaces, "clone", &error))?;
    let Fork::Outside(pid) = forked else {
        let (from_outside, to_outside) = ends.close_outside();
        inside::run(Inside { specification, opened, filter, from_outside, to_outside })
    };
    *child = Some(pid);
    let (from_inside, to_inside) = ends.close_inside();
    accompany(specification, pid, from_inside, to_inside)?;
    let start_time = start_time(pid).map_err(|error| failed(Step::Report, format!("/proc/{pid}/stat"), &error))?;
    Ok((pid, start_time))
}

/// Removes what a failed launch has made. What cannot be removed is found by the sandbox's id later.
fn undo(specification: &Specification, opened: &Opened, child: Option<u32>) {
    if let Some(pid) = child.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        // It is our child and not reaped yet, so the id is still its own.
        kill_process(pid, Signal::KILL).ok();
        waitpid(Some(pid), WaitOptions::empty()).ok();
    }
    opened.remove_sockets();
    let deadline = Instant::now() + Duration::from_secs(5);
    // A cgroup stays busy for a moment after its last process was reaped, and the kernel has no event for that.
    while specification.group.remove().is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Does the outside's part until the program runs.
fn accompany(
    specification: &Specification,
    pid: u32,
    mut from_inside: fs::File,
    mut to_inside: fs::File,
) -> Result<(), Failure> {
    write_proc(pid, "oom_score_adj", OOM_SCORE_ADJUSTMENT, Step::ResourceLimits)?;
    say(&mut to_inside, word::GO)?;
    hear(&mut from_inside, word::READY)?;
    let uid = specification.uid;
    write_proc(pid, "setgroups", "deny", Step::Identity)?;
    write_proc(pid, "gid_map", &format!("{uid} {uid} 1"), Step::Identity)?;
    write_proc(pid, "uid_map", &format!("{uid} {uid} 1"), Step::Identity)?;
    say(&mut to_inside, word::MAPPED)?;
    hear(&mut from_inside, word::EXECUTING)?;
    let mut rest = Vec::new();
    from_inside.read_to_end(&mut rest).map_err(|error| failed(Step::Report, "the pipe", &error))?;
    if rest.is_empty() { Ok(()) } else { Err(told(&rest)) }
}

fn write_proc(pid: u32, file: &str, value: &str, step: Step) -> Result<(), Failure> {
    let path = format!("/proc/{pid}/{file}");
    fs::write(&path, value).map_err(|error| failed(step, path, &error))
}

fn say(to_inside: &mut fs::File, word: u8) -> Result<(), Failure> {
    to_inside.write_all(&[word]).map_err(|error| failed(Step::Report, "the pipe to the new process", &error))
}

/// Waits for this word; anything else is the inside's failure, or its end without one.
fn hear(from_inside: &mut fs::File, word: u8) -> Result<(), Failure> {
    let mut first = [0_u8; 1];
    match from_inside.read_exact(&mut first) {
        Ok(()) if first == [word] => Ok(()),
        Ok(()) => {
            let mut text = first.to_vec();
            from_inside.read_to_end(&mut text).map_err(|error| failed(Step::Report, "the pipe", &error))?;
            Err(told(&text))
        }
        Err(error) => Err(failed(Step::Report, "the new process ended without a word", &error)),
    }
}

fn told(text: &[u8]) -> Failure {
    serde_json::from_slice(text).unwrap_or_else(|error| failed(Step::Report, "what the new process said", &error))
}

/// Field 22 of `/proc/<pid>/stat`. The second field, the name in parentheses, may itself have spaces and parentheses.
fn start_time(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let field = text.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    field.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in it"))
}

/// The ends of the two pipes between the processes.
#[derive(Debug)]
struct Ends {
    /// What the inside reads from and writes to.
    inside: (OwnedFd, OwnedFd),
    /// What the outside reads from and writes to.
    outside: (OwnedFd, OwnedFd),
}

impl Ends {
    fn make() -> io::Result<Self> {
        let (from_inside, to_outside) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from_outside, to_inside) = pipe_with(PipeFlags::CLOEXEC)?;
        // Above the numbers that will be inherited, for the same reason as all other descriptors.
        let raised = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 64);
        let inside = (raised(&from_outside)?, raised(&to_outside)?);
        Ok(Self { inside, outside: (from_inside, to_inside) })
    }

    /// In the outside process: the inside's ends must go, or we would not hear them close.
    fn close_inside(self) -> (fs::File, fs::File) {
        let (from_inside, to_inside) = self.outside;
        (from_inside.into(), to_inside.into())
    }

    /// In the inside process, for the same reason.
    fn close_outside(self) -> (fs::File, fs::File) {
        let (from_outside, to_outside) = self.inside;
        (from_outside.into(), to_outside.into())
    }
}
