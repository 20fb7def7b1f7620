//! A running command: its process, pipes and control group, and what is left of it afterwards.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use hutch_protocol::exec::{Ended, Exec, Outcome, Signal, SignalTarget, StartStep};
use hutch_protocol::frame::{Body, Channel};
use hutch_protocol::{Code, Failure};
use rustix::process::{Pid, kill_process, kill_process_group};

use super::command::Prepared;
use super::group::Group;
use super::input::{Input, Written};
use super::lifecycle::{Action, Lifecycle, Remains, Verdict};
use super::output::{Output, Sink};
use super::tree;
use crate::channel::Outgoing;
use crate::sys::spawn::{Identity, Plan, SpawnError, Spawner, Step};
use crate::sys::wait::{Reaped, Status, Usage};

/// A command from its start until its answer has been sent.
#[derive(Debug)]
pub(crate) struct Execution {
    /// The stream that it belongs to; `None` when its connection is gone.
    stream: Option<u32>,
    leader: i32,
    lifecycle: Lifecycle,
    started: Instant,
    ended: Option<(Status, Usage, Instant)>,
    group: Option<Group>,
    outputs: [Output; 2],
    input: Option<Input>,
}

/// What a request says about a command beside what it is.
#[derive(Debug)]
pub(crate) struct Terms {
    stream: u32,
    started: Instant,
    lifecycle: Lifecycle,
    max_output_bytes: Option<u64>,
}

impl Terms {
    /// The terms of a request that came now on this stream.
    pub(crate) fn new(stream: u32, exec: &Exec) -> Self {
        let started = Instant::now();
        let lifecycle = Lifecycle::new(exec, started);
        Self { stream, started, lifecycle, max_output_bytes: exec.max_output_bytes }
    }
}

/// What has to go on living after the answer.
#[derive(Debug)]
pub(crate) struct Leftover {
    /// Pipes that background children may still write to.
    pub(crate) pipes: Vec<OwnedFd>,
    /// The control group, in which something may still run.
    pub(crate) group: Option<Group>,
}

/// A command that did not start: its group, and why.
#[derive(Debug)]
pub(crate) struct NotStarted {
    /// Unused.
    pub(crate) group: Option<Group>,
    /// The answer.
    pub(crate) outcome: Outcome,
}

impl Execution {
    /// Starts the command.
    pub(crate) fn start(
        terms: Terms,
        prepared: &Prepared,
        group: Option<Group>,
        stdio: Stdio,
        spawner: &mut Spawner,
    ) -> Result<Self, Box<NotStarted>> {
        let account = &prepared.account;
        let is_root = account.uid == 0 && account.gid == 0 && account.groups.is_empty();
        let plan = Plan {
            candidates: &prepared.candidates,
            argv: &prepared.argv,
            env: &prepared.env,
            cwd: &prepared.cwd,
            cwd_required: prepared.cwd_required,
            identity: (!is_root).then_some(Identity { uid: account.uid, gid: account.gid, groups: &account.groups }),
            stdio: [stdio.theirs[0].as_fd(), stdio.theirs[1].as_fd(), stdio.theirs[2].as_fd()],
            keep: prepared.script.as_ref().map(AsFd::as_fd),
            group: group.as_ref().map(Group::directory),
        };
        let leader = match spawner.spawn(&plan) {
            Ok(leader) => leader,
            Err(error) => {
                let outcome = failed_to_start(&error, prepared);
                return Err(Box::new(NotStarted { group, outcome }));
            }
        };
        // The command has them now.
        drop(stdio.theirs);
        let [stdout, stderr] = stdio.outputs;
        let output = |channel, pipe| Output::new(channel, pipe, terms.max_output_bytes);
        Ok(Self {
            stream: Some(terms.stream),
            leader,
            lifecycle: terms.lifecycle,
            started: terms.started,
            ended: None,
            group,
            outputs: [output(Channel::Output, stdout), output(Channel::Error, stderr)],
            input: stdio.input.map(Input::new),
        })
    }

    /// Process id of the command itself; `None` once it is reaped.
    pub(crate) fn leader(&self) -> Option<i32> {
        self.lifecycle.runs().then_some(self.leader)
    }

    /// The stream that it belongs to.
    pub(crate) fn stream(&self) -> Option<u32> {
        self.stream
    }

    /// The output on this channel.
    pub(crate) fn output(&mut self, channel: Channel) -> Option<&mut Output> {
        match channel {
            Channel::Output => Some(&mut self.outputs[0]),
            Channel::Error => Some(&mut self.outputs[1]),
            Channel::Input => None,
        }
    }

    /// Both outputs.
    pub(crate) fn outputs(&self) -> &[Output; 2] {
        &self.outputs
    }

    /// The input, if it has one.
    pub(crate) fn input(&mut self) -> Option<&mut Input> {
        self.input.as_mut()
    }

    /// The pipe of its input, while it is open.
    pub(crate) fn input_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().and_then(Input::pipe)
    }

    /// The control group, if there are any.
    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// When [`Execution::tick`] wants to be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = self.lifecycle.deadline();
        if self.group.is_none() && self.lifecycle.waits_for_tree() {
            // Without control groups nobody says when the tree is gone.
            let soon = Instant::now() + std::time::Duration::from_millis(10);
            return Some(deadline.map_or(soon, |deadline| deadline.min(soon)));
        }
        deadline
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Instant) {
        let action = self.lifecycle.tick(now);
        self.act(action);
    }

    /// The host wants no more.
    pub(crate) fn cancel(&mut self) {
        let action = self.lifecycle.cancel(Instant::now());
        self.act(action);
    }

    /// The host is gone: nobody gets output or answer, but the command may go on. Input that the host had not
    /// ended stays open, since an end would tell the command that it has all.
    pub(crate) fn orphan(&mut self) {
        self.stream = None;
    }

    /// The command itself has ended.
    pub(crate) fn exited(&mut self, reaped: &Reaped) {
        let now = Instant::now();
        self.ended = Some((reaped.status, reaped.usage, now));
        self.lifecycle.exited(now);
        if let Some(input) = &mut self.input {
            input.close();
        }
    }

    /// Sends a signal to the command, its group or its tree. Does nothing once the command has ended: its
    /// process id may be another's.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let number = rustix::process::Signal::from_named_raw(signal.signal).ok_or_else(|| {
            Failure::new(Code::InvalidRequest, format!("signal {} does not exist or cannot be sent", signal.signal))
        })?;
        let Some(leader) = self.leader().and_then(Pid::from_raw) else { return Ok(()) };
        // All of these fail only when the target has just ended.
        let _ = match signal.to {
            SignalTarget::Process => kill_process(leader, number),
            SignalTarget::Group => kill_process_group(leader, number),
            SignalTarget::Tree => {
                self.signal_tree(number);
                Ok(())
            }
        };
        Ok(())
    }

    /// Moves output towards the host. Returns whether there is more to do at once.
    pub(crate) fn pump(&mut self, mut outgoing: Option<&mut Outgoing>, scratch: &mut [u8]) -> bool {
        let mut more = false;
        for output in &mut self.outputs {
            let mut sink = match (self.stream, outgoing.as_deref_mut()) {
                // What a killed command wrote last is still delivered, but nobody waits for a cancelled one's.
                (Some(stream), Some(outgoing)) if self.lifecycle.verdict() != Verdict::Cancelled => {
                    Sink::Host(stream, outgoing)
                }
                _ => Sink::Nowhere,
            };
            more |= output.pump(&mut sink, scratch);
        }
        more
    }

    /// Tells the host what writing input led to.
    pub(crate) fn report_input(stream: u32, written: &Written, outgoing: &mut Outgoing) {
        let channel = Channel::Input;
        let credit = written.credit.map(|bytes| outgoing.frame(stream, Body::Credit { channel, bytes }));
        let end = written.refused.then(|| outgoing.frame(stream, Body::End { channel }));
        debug_assert!(credit.is_none_or(|sent| sent.is_ok()) && end.is_none_or(|sent| sent.is_ok()));
    }

    /// Whether the answer waits for the end of the whole tree.
    pub(crate) fn waits_for_tree(&self) -> bool {
        self.lifecycle.waits_for_tree()
    }

    /// Whether the answer can be sent.
    pub(crate) fn finished(&mut self) -> bool {
        let output = self.outputs.iter().any(Output::is_open);
        let tree = self.lifecycle.waits_for_tree() && self.tree_lives();
        self.lifecycle.finished(Remains { output, tree })
    }

    /// The answer, and what must go on living.
    pub(crate) fn finish(mut self) -> (Ended, Leftover) {
        let mut pipes = Vec::new();
        let [stdout, stderr] = &mut self.outputs;
        let mut report = |output: &mut Output| {
            let (report, pipe) = output.finish();
            pipes.extend(pipe);
            report
        };
        let (stdout, stderr) = (report(stdout), report(stderr));
        let kills = self.group.as_ref().map_or(0, Group::out_of_memory_kills);
        let (status, usage, at) = self.ended.unwrap_or((
            // It could not be killed within the time for that.
            Status::Signaled(libc::SIGKILL, false),
            Usage::default(),
            Instant::now(),
        ));
        let ended = Ended {
            outcome: outcome(self.lifecycle.verdict(), status, kills),
            stdout,
            stderr,
            wall_us: u64::try_from(at.duration_since(self.started).as_micros()).unwrap_or(u64::MAX),
            user_us: usage.user_us,
            system_us: usage.system_us,
            max_resident_bytes: usage.max_resident_bytes,
            out_of_memory_kills: kills,
        };
        (ended, Leftover { pipes, group: self.group })
    }

    fn act(&mut self, action: Option<Action>) {
        match action {
            None => {}
            Some(Action::Terminate) => self.signal_tree(rustix::process::Signal::TERM),
            Some(Action::Kill) => self.kill_tree(),
            Some(Action::EndOutput) => self.outputs.iter_mut().for_each(Output::end_soon),
        }
    }

    fn kill_tree(&self) {
        match &self.group {
            Some(group) if group.kill().is_ok() => {}
            _ => tree::kill(self.leader),
        }
    }

    fn signal_tree(&self, signal: rustix::process::Signal) {
        match &self.group {
            Some(group) => {
                for pid in group.processes().into_iter().filter_map(Pid::from_raw) {
                    // It may have ended meanwhile.
                    let _ = kill_process(pid, signal);
                }
            }
            None => tree::signal(self.leader, signal),
        }
    }

    fn tree_lives(&self) -> bool {
        match &self.group {
            Some(group) => group.populated(),
            None => !tree::processes(self.leader).is_empty(),
        }
    }
}

/// The ends of a command's pipes.
#[derive(Debug)]
pub(crate) struct Stdio {
    /// What the command gets as 0, 1 and 2; closed here once it runs.
    theirs: [OwnedFd; 3],
    outputs: [OwnedFd; 2],
    input: Option<OwnedFd>,
}

impl Stdio {
    /// Makes the pipes. Without input the command reads from `null`.
    pub(crate) fn new(with_input: bool, null: &OwnedFd) -> rustix::io::Result<Self> {
        let (stdout, their_stdout) = pipe()?;
        let (stderr, their_stderr) = pipe()?;
        rustix::io::ioctl_fionbio(&stdout, true)?;
        rustix::io::ioctl_fionbio(&stderr, true)?;
        let (their_stdin, input) = if with_input {
            let (their_stdin, input) = pipe()?;
            rustix::io::ioctl_fionbio(&input, true)?;
            (their_stdin, Some(input))
        } else {
            (null.try_clone().map_err(|_| rustix::io::Errno::MFILE)?, None)
        };
        Ok(Self { theirs: [their_stdin, their_stdout, their_stderr], outputs: [stdout, stderr], input })
    }
}

fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
}

fn outcome(verdict: Verdict, status: Status, out_of_memory_kills: u64) -> Outcome {
    match (verdict, status) {
        (Verdict::TimedOut, _) => Outcome::TimedOut {},
        (Verdict::Cancelled, _) => Outcome::Cancelled {},
        // The command itself was the victim, or it passed on that its child was, as shells do.
        (Verdict::Natural, Status::Signaled(libc::SIGKILL, _) | Status::Exited(137)) if out_of_memory_kills > 0 => {
            Outcome::OutOfMemory {}
        }
        (Verdict::Natural, Status::Signaled(signal, core_dumped)) => Outcome::Signaled { signal, core_dumped },
        (Verdict::Natural, Status::Exited(code)) => Outcome::Exited { code },
    }
}

fn failed_to_start(error: &SpawnError, prepared: &Prepared) -> Outcome {
    let errno = error.source.raw_os_error().unwrap_or(0);
    let reason = &error.source;
    let program = prepared.argv.first().map_or_else(Default::default, |name| name.to_string_lossy());
    let (step, what) = match error.step {
        Step::Clone if errno == libc::EAGAIN => {
            (StartStep::Process, "the sandbox has as many processes as it may have".to_owned())
        }
        Step::Clone => (StartStep::Process, "no new process".to_owned()),
        Step::Descriptors => (StartStep::Process, "the pipes could not be set up".to_owned()),
        Step::Identity => (StartStep::User, format!("cannot become user {}", prepared.account.name)),
        Step::WorkingDirectory => (StartStep::WorkingDirectory, format!("cwd {}", prepared.cwd.to_string_lossy())),
        Step::Execute if errno == libc::ENOENT => (StartStep::Program, format!("{program}: command not found")),
        Step::Execute => (StartStep::Program, format!("{program}: cannot be executed")),
    };
    let not_found = error.step == Step::Execute && errno == libc::ENOENT;
    let exit_code = if not_found { 127 } else { 126 };
    Outcome::FailedToStart { step, exit_code, errno, message: format!("{what}: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_end_are_told_apart() {
        let killed = Status::Signaled(libc::SIGKILL, false);
        let natural = Verdict::Natural;
        assert_eq!(outcome(natural, Status::Exited(3), 0), Outcome::Exited { code: 3 });
        assert_eq!(outcome(natural, Status::Exited(137), 0), Outcome::Exited { code: 137 });
        assert_eq!(outcome(natural, Status::Exited(137), 1), Outcome::OutOfMemory {});
        assert_eq!(outcome(natural, killed, 1), Outcome::OutOfMemory {});
        assert_eq!(outcome(natural, killed, 0), Outcome::Signaled { signal: 9, core_dumped: false });
        assert_eq!(outcome(natural, Status::Exited(0), 1), Outcome::Exited { code: 0 }, "it survived the loss");
        assert_eq!(outcome(Verdict::TimedOut, killed, 1), Outcome::TimedOut {});
        assert_eq!(outcome(Verdict::Cancelled, Status::Exited(0), 0), Outcome::Cancelled {});
    }
}
