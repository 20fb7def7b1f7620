//! When a command's stream ends, and what has to be done until then. No I/O: it is told what happened and
//! what time it is, and says what to do.
//!
//! ```text
//!              exited                      all output closed
//!  ┌─────────┐────────────► ┌──────────┐──────────────────────────────────────► ┌──────────┐
//!  │ Running │              │ Draining │  grace over   ┌───────────┐  delivered │          │
//!  └────┬────┘              └────┬─────┘─────────────► │ LastBytes │ ─────────► │          │
//!       │ timeout, with          │ cancel,             └─────┬─────┘            │          │
//!       │ a kill grace           │ timeout without grace     │ cancel           │ Finished │
//!       ▼                        ▼                           ▼                  │          │
//!  ┌─────────────┐ grace over  ┌─────────────────────────────────┐              │          │
//!  │ Terminating │ ──────────► │ Dying                           │ ───────────► │          │
//!  └─────────────┘ or cancel   └─────────────────────────────────┘  tree gone   └──────────┘
//!                              (a timeout without a kill grace and a cancel of `Running` come here at once)
//! ```

use std::time::{Duration, Instant};

use hutch_protocol::exec::Exec;

/// How long a killed tree may take to be gone. What is left then sits in the kernel and cannot be waited for.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A command from its start to its answer.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    timeout_at: Option<Instant>,
    kill_grace: Duration,
    grace: Option<Duration>,
    phase: Phase,
    exited: bool,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Terminating { kill_at: Instant },
    Dying { give_up_at: Instant },
    Draining { until: Option<Instant> },
    LastBytes,
    Finished,
}

/// Who ended the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It itself, or a stranger.
    Natural,
    /// Its timeout.
    TimedOut,
    /// The host.
    Cancelled,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send SIGTERM to the tree.
    Terminate,
    /// Kill the tree.
    Kill,
    /// Output is delivered as far as it has been written by now, and no further.
    EndOutput,
}

/// What is left of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remains {
    /// Whether any output can still come.
    pub(crate) output: bool,
    /// Whether anything of the tree lives.
    pub(crate) tree: bool,
}

impl Lifecycle {
    /// The command starts now.
    pub(crate) fn new(exec: &Exec, now: Instant) -> Self {
        Self {
            timeout_at: exec.timeout_ms.and_then(|timeout| now.checked_add(Duration::from_millis(timeout))),
            kill_grace: Duration::from_millis(exec.kill_grace_ms),
            grace: exec.grace_ms.map(|grace| Duration::from_millis(grace.into())),
            phase: Phase::Running,
            exited: false,
            verdict: Verdict::Natural,
        }
    }

    /// When [`Lifecycle::tick`] wants to be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.timeout_at,
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Dying { give_up_at } => Some(give_up_at),
            Phase::Draining { until: Some(until) } => Some(until),
            // A call that waits for background children as long as they please still has its timeout.
            Phase::Draining { until: None } => self.timeout_at,
            Phase::LastBytes | Phase::Finished => None,
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Action> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return None;
        }
        match self.phase {
            Phase::Running | Phase::Draining { until: None } => {
                self.verdict = Verdict::TimedOut;
                if self.kill_grace.is_zero() {
                    return Some(self.kill(now));
                }
                let kill_at = now.checked_add(self.kill_grace).unwrap_or(now);
                self.phase = Phase::Terminating { kill_at };
                Some(Action::Terminate)
            }
            Phase::Terminating { .. } => Some(self.kill(now)),
            Phase::Draining { .. } => {
                self.phase = Phase::LastBytes;
                Some(Action::EndOutput)
            }
            Phase::Dying { .. } => {
                self.phase = Phase::Finished;
                None
            }
            Phase::LastBytes | Phase::Finished => None,
        }
    }

    /// The host wants no more. A command that has already ended keeps its own end.
    pub(crate) fn cancel(&mut self, now: Instant) -> Option<Action> {
        if matches!(self.phase, Phase::Dying { .. } | Phase::Finished) {
            return None;
        }
        if !self.exited && self.verdict == Verdict::Natural {
            self.verdict = Verdict::Cancelled;
        }
        Some(self.kill(now))
    }

    /// The command itself has ended; its tree may live on.
    pub(crate) fn exited(&mut self, now: Instant) {
        self.exited = true;
        if self.phase == Phase::Running {
            self.phase = Phase::Draining { until: self.grace.and_then(|grace| now.checked_add(grace)) };
        }
    }

    /// Whether the answer can be sent now.
    pub(crate) fn finished(&mut self, remains: Remains) -> bool {
        let finished = match self.phase {
            Phase::Running => false,
            Phase::Terminating { .. } | Phase::Dying { .. } => self.exited && !remains.tree && !remains.output,
            Phase::Draining { .. } | Phase::LastBytes => !remains.output,
            Phase::Finished => true,
        };
        if finished {
            self.phase = Phase::Finished;
        }
        finished
    }

    /// Whether the answer waits for the tree's end.
    pub(crate) fn waits_for_tree(&self) -> bool {
        matches!(self.phase, Phase::Terminating { .. } | Phase::Dying { .. })
    }

    /// Whether the command itself still runs.
    pub(crate) fn runs(&self) -> bool {
        !self.exited
    }

    /// Who ended the command.
    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    fn kill(&mut self, now: Instant) -> Action {
        self.phase = Phase::Dying { give_up_at: now.checked_add(GIVE_UP).unwrap_or(now) };
        Action::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Remains = Remains { output: false, tree: false };
    const HELD: Remains = Remains { output: true, tree: true };
    const SILENT: Remains = Remains { output: false, tree: true };

    /// A lifecycle and a clock: milliseconds since the start.
    struct Story {
        lifecycle: Lifecycle,
        start: Instant,
    }

    impl Story {
        fn new(change: impl FnOnce(&mut Exec)) -> Self {
            let mut exec = Exec::shell("true");
            change(&mut exec);
            let start = Instant::now();
            Self { lifecycle: Lifecycle::new(&exec, start), start }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn tick(&mut self, ms: u64) -> Option<Action> {
            self.lifecycle.tick(self.at(ms))
        }

        fn deadline(&self) -> Option<u128> {
            self.lifecycle.deadline().map(|deadline| (deadline - self.start).as_millis())
        }
    }

    #[test]
    fn a_command_ends_when_its_output_does() {
        let mut story = Story::new(|_| {});
        assert_eq!(story.deadline(), None);
        assert!(!story.lifecycle.finished(NOTHING), "it still runs, though it closed its output");
        story.lifecycle.exited(story.at(5));
        assert!(!story.lifecycle.finished(HELD));
        assert!(story.lifecycle.finished(SILENT), "a silent background child does not matter");
        assert_eq!(story.lifecycle.verdict(), Verdict::Natural);
    }

    #[test]
    fn a_background_child_is_waited_for_no_longer_than_the_grace() {
        let mut story = Story::new(|exec| exec.timeout_ms = Some(100));
        story.lifecycle.exited(story.at(5));
        assert_eq!(story.deadline(), Some(255), "the grace counts, not the timeout: the command has ended");
        assert_eq!(story.tick(254), None);
        assert_eq!(story.tick(255), Some(Action::EndOutput));
        assert!(!story.lifecycle.finished(HELD), "a slow reader still gets what was written");
        assert_eq!(story.deadline(), None);
        assert!(story.lifecycle.finished(SILENT));
        assert_eq!(story.lifecycle.verdict(), Verdict::Natural);
    }

    #[test]
    fn waiting_without_grace_ends_with_the_timeout() {
        let mut story = Story::new(|exec| (exec.timeout_ms, exec.grace_ms) = (Some(100), None));
        story.lifecycle.exited(story.at(5));
        assert_eq!(story.tick(100), Some(Action::Kill));
        assert!(!story.lifecycle.finished(SILENT));
        assert!(story.lifecycle.finished(NOTHING));
        assert_eq!(story.lifecycle.verdict(), Verdict::TimedOut);
    }

    #[test]
    fn a_timeout_waits_for_the_whole_tree() {
        let mut story = Story::new(|exec| exec.timeout_ms = Some(100));
        assert_eq!(story.tick(99), None);
        assert_eq!(story.tick(100), Some(Action::Kill));
        assert!(story.lifecycle.waits_for_tree());
        story.lifecycle.exited(story.at(101));
        assert!(!story.lifecycle.finished(SILENT));
        assert!(story.lifecycle.finished(NOTHING));
        assert_eq!(story.lifecycle.verdict(), Verdict::TimedOut);
    }

    #[test]
    fn a_kill_grace_lets_the_tree_end_itself() {
        let mut story = Story::new(|exec| (exec.timeout_ms, exec.kill_grace_ms) = (Some(100), 50));
        assert_eq!(story.tick(100), Some(Action::Terminate));
        assert_eq!(story.tick(120), None);
        story.lifecycle.exited(story.at(130));
        assert!(!story.lifecycle.finished(SILENT), "a child has not ended yet");
        assert_eq!(story.tick(150), Some(Action::Kill));
        assert!(story.lifecycle.finished(NOTHING));
        assert_eq!(story.lifecycle.verdict(), Verdict::TimedOut);
    }

    #[test]
    fn what_cannot_be_killed_is_given_up() {
        let mut story = Story::new(|_| {});
        assert_eq!(story.lifecycle.cancel(story.at(10)), Some(Action::Kill));
        assert!(!story.lifecycle.finished(HELD));
        assert_eq!(story.tick(10_009), None);
        assert_eq!(story.tick(10_010), None);
        assert!(story.lifecycle.finished(HELD));
        assert_eq!(story.lifecycle.verdict(), Verdict::Cancelled);
    }

    #[test]
    fn a_cancel_kills_what_is_left_but_does_not_change_the_past() {
        let mut story = Story::new(|_| {});
        story.lifecycle.exited(story.at(5));
        assert_eq!(story.lifecycle.cancel(story.at(6)), Some(Action::Kill));
        assert_eq!(story.lifecycle.cancel(story.at(7)), None, "once is enough");
        assert!(story.lifecycle.finished(NOTHING));
        assert_eq!(story.lifecycle.verdict(), Verdict::Natural);
    }

    #[test]
    fn times_at_the_end_of_time_are_never() {
        let story = Story::new(|exec| exec.timeout_ms = Some(u64::MAX));
        assert!(story.deadline().is_none_or(|deadline| deadline > 1 << 60));
    }
}
