//! The table of running commands, and of what finished ones have left running.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hutch_protocol::exec::{Ended, Exec, Outcome, OutputReport, StartStep};
use hutch_protocol::frame::{Channel, DATA_MAX};
use hutch_protocol::machine::{ORPHANS_MS, Warmed};
use hutch_protocol::{ByteText, Code, Failure};

use super::poll::{Interest, Poll, Token};
use crate::channel::Outgoing;
use crate::exec::command::{PrepareError, Prepared};
use crate::exec::execution::{Execution, Leftover, NotStarted, Stdio, Terms};
use crate::exec::group::{Group, Groups};
use crate::files::task::json;
use crate::sys::spawn::Spawner;
use crate::sys::wait::{self, Reaped};

/// Pipes of background children that are drained; when there are more, the oldest is closed.
const LEFTOVER_PIPES: usize = 1024;

/// Children reaped in one turn.
const REAP: usize = 512;

/// How long commands without a connection wait to be told whether they go on.
const ORPHANS: Duration = Duration::from_millis(ORPHANS_MS);

/// What a command is run for: decides what the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Somebody wants it.
    Exec,
    /// What it needs is to be in memory afterwards.
    Warm,
}

/// All commands.
#[derive(Debug)]
pub(crate) struct Commands {
    groups: Option<Groups>,
    spawner: Spawner,
    null: OwnedFd,
    scratch: Vec<u8>,
    running: BTreeMap<u64, Execution>,
    /// Those of `running` that are no `Exec`.
    warming: BTreeSet<u64>,
    /// Commands whose connection is gone and that wait to be told whether they go on, and until when they wait.
    orphans: BTreeMap<u64, Instant>,
    leaders: HashMap<i32, u64>,
    /// Commands about which something may have changed.
    due: BTreeSet<u64>,
    /// Commands whose control group is waited for.
    watched: BTreeSet<u64>,
    leftover_groups: BTreeMap<u64, Group>,
    leftover_pipes: BTreeMap<u64, OwnedFd>,
    next_leftover: u64,
    /// Whether a child may be waiting to be reaped.
    reaps: bool,
}

/// A stream whose answer is to be sent.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The stream; `None` when nobody waits any more.
    pub(crate) stream: Option<u32>,
}

impl Commands {
    /// No commands yet.
    pub(crate) fn new(groups: Option<Groups>) -> io::Result<Self> {
        Ok(Self {
            groups,
            spawner: Spawner::new(),
            null: File::options().read(true).write(true).open("/dev/null")?.into(),
            scratch: vec![0; DATA_MAX],
            running: BTreeMap::new(),
            warming: BTreeSet::new(),
            orphans: BTreeMap::new(),
            leaders: HashMap::new(),
            due: BTreeSet::new(),
            watched: BTreeSet::new(),
            leftover_groups: BTreeMap::new(),
            leftover_pipes: BTreeMap::new(),
            next_leftover: 0,
            reaps: false,
        })
    }

    /// The control groups, if there are any.
    pub(crate) fn groups(&mut self) -> Option<&mut Groups> {
        self.groups.as_mut()
    }

    /// How many commands somebody waits for, and how many go on though nobody does.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let execs = self.running.values().filter(|execution| execution.stream().is_some()).count();
        (execs as u64, (self.running.len() - execs) as u64)
    }

    /// Starts a command under this key. If it is over at once, that is its answer.
    pub(crate) fn start(
        &mut self,
        (stream, key): (u32, u64),
        exec: Exec,
        purpose: Purpose,
        env: &BTreeMap<String, ByteText>,
        poll: &Poll,
    ) -> Option<Result<Vec<u8>, Failure>> {
        let with_input = exec.stdin;
        let terms = Terms::new(stream, &exec);
        let prepared = match Prepared::new(exec, env) {
            Ok(prepared) => prepared,
            Err(PrepareError::Request(failure)) => return Some(Err(failure)),
            Err(PrepareError::Start(step, failure)) => return Some(answer(purpose, &not_started(step, failure))),
        };
        let execution = match self.spawn(terms, &prepared, with_input) {
            Ok(execution) => execution,
            Err(outcome) => return Some(answer(purpose, &ended(outcome))),
        };
        if purpose == Purpose::Warm {
            self.warming.insert(key);
        }
        let watched = watch_pipes(&execution, key, poll);
        if let Some(leader) = execution.leader() {
            self.leaders.insert(leader, key);
        }
        let execution = self.running.entry(key).or_insert(execution);
        if let Err(error) = watched {
            // Too many descriptors: its output cannot be waited for, so it cannot run.
            execution.cancel();
            self.due.insert(key);
            crate::console::say(&format!("a command was ended: its output cannot be waited for: {error}"));
        }
        None
    }

    fn spawn(&mut self, terms: Terms, prepared: &Prepared, with_input: bool) -> Result<Execution, Outcome> {
        let no_process = |what: &str, error: io::Error| Outcome::FailedToStart {
            step: StartStep::Process,
            exit_code: 126,
            errno: error.raw_os_error().unwrap_or(0),
            message: format!("{what}: {error}"),
        };
        let stdio = Stdio::new(with_input, &self.null).map_err(|error| no_process("no pipes", error.into()))?;
        let group = self.groups.as_mut().map(Groups::take).transpose();
        let group = group.map_err(|error| no_process("no control group", error))?;
        Execution::start(terms, prepared, group, stdio, &mut self.spawner).map_err(|not_started| {
            let NotStarted { group, outcome } = *not_started;
            self.give_back(group);
            outcome
        })
    }

    /// The command under this key.
    pub(crate) fn get(&mut self, key: u64) -> Option<&mut Execution> {
        self.due.insert(key);
        self.running.get_mut(&key)
    }

    /// Something about the command may have changed.
    pub(crate) fn wake_output(&mut self, key: u64, channel: Channel, hung_up: bool) {
        if let Some(output) = self.get(key).and_then(|execution| execution.output(channel)) {
            output.wake(hung_up);
        }
    }

    /// A control group may have become empty.
    pub(crate) fn wake_group(&mut self, key: u64, poll: &Poll) {
        if self.running.contains_key(&key) {
            self.due.insert(key);
        } else if self.leftover_groups.get(&key).is_some_and(|group| !group.populated()) {
            let group = self.leftover_groups.remove(&key);
            if let Some(group) = &group {
                poll.remove(group.events());
            }
            self.give_back(group);
        }
    }

    /// A background child has written something, or closed its pipe.
    pub(crate) fn drain_leftover(&mut self, key: u64) {
        let Some(pipe) = self.leftover_pipes.get(&key) else { return };
        match rustix::io::read(pipe, &mut self.scratch[..]) {
            Ok(0) => drop(self.leftover_pipes.remove(&key)),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => drop(self.leftover_pipes.remove(&key)),
        }
    }

    /// Children may have ended.
    pub(crate) fn children_ended(&mut self) {
        self.reaps = true;
    }

    /// The earliest time at which something has to be done for a command.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let of_commands = self.running.values().filter_map(Execution::deadline);
        of_commands.chain(self.orphans.values().copied()).min()
    }

    /// Whether there is something to do at once; `has_room`: whether the channel takes more output.
    pub(crate) fn is_busy(&self, has_room: bool) -> bool {
        // What nobody hears needs no room.
        let unheard = |key| self.running.get(key).is_some_and(|execution| execution.stream().is_none());
        self.reaps || (has_room && !self.due.is_empty()) || self.due.iter().any(unheard)
    }

    /// Reaps, lets time pass, moves output, and answers what is finished.
    pub(crate) fn turn(&mut self, mut outgoing: Option<&mut Outgoing>, poll: &Poll) -> Vec<Answered> {
        self.reap();
        let now = Instant::now();
        if self.orphans.values().any(|until| *until <= now) {
            crate::console::say("commands of a lost connection are killed: nobody said that they go on");
            self.settle_orphans(false);
        }
        for (key, execution) in &mut self.running {
            if execution.deadline().is_some_and(|deadline| deadline <= now) {
                execution.tick(now);
                self.due.insert(*key);
            }
        }
        let mut answered = Vec::new();
        for key in std::mem::take(&mut self.due) {
            let Some(execution) = self.running.get_mut(&key) else { continue };
            if execution.pump(outgoing.as_deref_mut(), &mut self.scratch) {
                self.due.insert(key);
            }
            if execution.waits_for_tree()
                && self.watched.insert(key)
                && let Some(group) = execution.group()
            {
                // Without it the answer comes when the tree is given up: late but right.
                let _ = poll.add(group.events(), Token::Group(key), Interest::PriorityEdge);
            }
            if execution.finished() {
                answered.push(self.finish(key, outgoing.as_deref_mut(), poll));
            }
        }
        answered
    }

    /// The connection is gone: commands wait to be told whether they go on. What they write meanwhile is nobody's.
    pub(crate) fn orphan_all(&mut self) {
        let until = Instant::now() + ORPHANS;
        for (key, execution) in &mut self.running {
            if execution.stream().is_some() {
                execution.orphan();
                self.orphans.insert(*key, until);
                self.due.insert(*key);
            }
        }
    }

    /// Commands of a lost connection go on, with nobody to hear from them, or are killed.
    pub(crate) fn settle_orphans(&mut self, continues: bool) {
        for key in std::mem::take(&mut self.orphans).into_keys() {
            if !continues && let Some(execution) = self.get(key) {
                execution.cancel();
            }
        }
    }

    /// Everything is over: all commands are killed, their answers are nobody's.
    pub(crate) fn kill_all(&mut self) {
        for (key, execution) in &mut self.running {
            execution.orphan();
            execution.cancel();
            self.due.insert(*key);
        }
    }

    /// The control groups, to remove them when the agent ends.
    pub(crate) fn into_groups(self) -> Option<Groups> {
        self.groups
    }

    fn finish(&mut self, key: u64, outgoing: Option<&mut Outgoing>, poll: &Poll) -> Answered {
        let execution = self.running.remove(&key).expect("the caller has just seen it");
        self.due.remove(&key);
        self.orphans.remove(&key);
        let purpose = if self.warming.remove(&key) { Purpose::Warm } else { Purpose::Exec };
        if let Some(leader) = execution.leader() {
            // It could not be killed. When it is reaped at last it is a stranger.
            self.leaders.remove(&leader);
        }
        let stream = execution.stream();
        let (ended, leftover) = execution.finish();
        if let (Some(stream), Some(outgoing)) = (stream, outgoing) {
            outgoing.answer(stream, &answer(purpose, &ended));
        }
        self.keep(key, leftover, poll);
        Answered { stream }
    }

    fn keep(&mut self, key: u64, leftover: Leftover, poll: &Poll) {
        let watched = self.watched.remove(&key);
        if let Some(group) = leftover.group {
            if group.populated() {
                if !watched {
                    // Without it the group is never used again.
                    let _ = poll.add(group.events(), Token::Group(key), Interest::PriorityEdge);
                }
                self.leftover_groups.insert(key, group);
            } else {
                if watched {
                    poll.remove(group.events());
                }
                self.give_back(Some(group));
            }
        }
        for pipe in leftover.pipes {
            let number = self.next_leftover;
            self.next_leftover += 1;
            if poll.modify(&pipe, Token::Leftover(number), Interest::Readable).is_ok() {
                self.leftover_pipes.insert(number, pipe);
            }
            if self.leftover_pipes.len() > LEFTOVER_PIPES {
                self.leftover_pipes.pop_first();
            }
        }
    }

    fn give_back(&mut self, group: Option<Group>) {
        if let (Some(groups), Some(group)) = (&mut self.groups, group) {
            groups.give_back(group);
        }
    }

    fn reap(&mut self) {
        if !std::mem::take(&mut self.reaps) {
            return;
        }
        for _ in 0..REAP {
            match wait::reap() {
                Ok(Some(reaped)) => self.reaped(&reaped),
                Ok(None) => return,
                Err(error) => return crate::console::say(&format!("children cannot be reaped: {error}")),
            }
        }
        self.reaps = true;
    }

    fn reaped(&mut self, reaped: &Reaped) {
        // Most are orphans: they are nobody's any more.
        let Some(key) = self.leaders.remove(&reaped.pid) else { return };
        if let Some(execution) = self.get(key) {
            execution.exited(reaped);
        }
    }
}

fn watch_pipes(execution: &Execution, key: u64, poll: &Poll) -> rustix::io::Result<()> {
    for (output, channel) in execution.outputs().iter().zip([Channel::Output, Channel::Error]) {
        if let Some(pipe) = output.pipe() {
            poll.add(pipe, Token::Output(key, channel), Interest::ReadableEdge)?;
        }
    }
    match execution.input_pipe() {
        Some(pipe) => poll.add(pipe, Token::Input(key), Interest::WritableEdge),
        None => Ok(()),
    }
}

/// What the host is told.
fn answer(purpose: Purpose, ended: &Ended) -> Result<Vec<u8>, Failure> {
    match (purpose, &ended.outcome) {
        (Purpose::Exec, _) => Ok(json(ended)),
        (Purpose::Warm, Outcome::Exited { code: 0 }) => Ok(json(&Warmed { wall_us: ended.wall_us })),
        (Purpose::Warm, outcome) => {
            Err(Failure::new(Code::Other, format!("/bin/sh could not be warmed up: {outcome:?}")))
        }
    }
}

/// A command that the guest lacks something for.
fn not_started(step: StartStep, failure: Failure) -> Ended {
    ended(Outcome::FailedToStart { step, exit_code: 126, errno: failure.errno.unwrap_or(0), message: failure.message })
}

/// The end of a command that never ran.
fn ended(outcome: Outcome) -> Ended {
    Ended {
        outcome,
        stdout: OutputReport::default(),
        stderr: OutputReport::default(),
        wall_us: 0,
        user_us: 0,
        system_us: 0,
        max_resident_bytes: 0,
        out_of_memory_kills: 0,
    }
}
