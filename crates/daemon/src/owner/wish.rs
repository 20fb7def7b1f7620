//! What is done about a wish for another state: now, later, or not at all.

use hutch_api::{Error, ErrorKind};

use super::handle::Command;
use super::task::{Next, Task};
use crate::lifecycle::{Event, State};

/// What is wished for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Pause,
    Resume,
    Take,
    Restore,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It begins now.
    Now,
    /// It waits until what is going on is over.
    Later,
    /// It is so already, or on the way.
    Already,
    /// What is saved already makes a paused sandbox of it.
    Keep,
    /// It has no meaning in this state.
    Refused,
}

/// What the decision depends on.
#[derive(Debug, Clone, Copy)]
struct Situation {
    state: State,
    /// Whether the machine can be talked to.
    is_connected: bool,
    /// Whether there is a saved machine.
    is_saved: bool,
}

impl Situation {
    fn verdict(self, wish: Wish) -> Verdict {
        match (self.state, wish) {
            (State::Running, Wish::Resume)
            | (State::Resuming, Wish::Resume)
            | (State::Pausing | State::Paused | State::Forking, Wish::Pause) => Verdict::Already,
            (State::Running, _) if !self.is_connected => Verdict::Later,
            (State::Running, _) => Verdict::Now,
            (State::Pausing | State::Resuming | State::Forking, _) => Verdict::Later,
            (State::Paused, _) => Verdict::Now,
            (State::Error, Wish::Pause) if self.is_saved => Verdict::Keep,
            (State::Error, Wish::Resume | Wish::Restore) => Verdict::Now,
            (State::Error, Wish::Take) if self.is_saved => Verdict::Now,
            (State::Error, _) | (State::Creating | State::Destroying | State::Destroyed | State::Failed, _) => {
                Verdict::Refused
            }
        }
    }
}

impl Task {
    /// Does what another state is wished for with; `Some` when that ends what is going on.
    pub(super) async fn wish(&mut self, command: Command) -> Option<Next> {
        let wish = match &command {
            Command::Pause { .. } => Wish::Pause,
            Command::Resume { .. } => Wish::Resume,
            Command::Take { .. } => Wish::Take,
            Command::Restore { .. } => Wish::Restore,
            Command::Destroy { .. } | Command::Due | Command::Evict { .. } | Command::Update { .. } => return None,
        };
        let situation = Situation {
            state: self.row.state,
            is_connected: self.machine.is_some(),
            is_saved: self.row.pause.is_some(),
        };
        match situation.verdict(wish) {
            Verdict::Later => {
                self.postponed.push_back(command);
                None
            }
            Verdict::Now => Some(self.begin(command)),
            Verdict::Already => {
                self.reply(command, Ok(()));
                None
            }
            Verdict::Keep => {
                self.row.reason = None;
                self.row.desired = crate::store::Desired::Paused;
                self.commit(Event::PauseAsked, Some("what is saved is kept".to_owned())).await;
                self.reply(command, Ok(()));
                None
            }
            Verdict::Refused => {
                let message = match wish {
                    Wish::Pause => format!("sandbox is {}; it must be running to be paused", self.row.state),
                    Wish::Resume => format!("sandbox is {}; it must be paused to be resumed", self.row.state),
                    Wish::Take => format!("sandbox is {}; it must be running or paused to be copied", self.row.state),
                    Wish::Restore => {
                        format!("sandbox is {}; it must be running or paused to be restored", self.row.state)
                    }
                };
                self.reply(command, Err(Error::new(ErrorKind::WrongState, message)));
                None
            }
        }
    }

    fn begin(&mut self, command: Command) -> Next {
        match command {
            Command::Pause { cause, done } => {
                self.askers.push(done);
                Next::Pause { cause }
            }
            Command::Resume { done } => {
                self.askers.push(done);
                Next::Resume
            }
            Command::Take { snapshot, is_named, done } => Next::Take { snapshot, is_named, done },
            Command::Restore { snapshot, done } => Next::Restore { snapshot, done },
            Command::Destroy { cause, done } => {
                self.waiting.push(done);
                Next::Destroy { cause }
            }
            Command::Evict { reason } => Next::Fail { reason },
            Command::Due | Command::Update { .. } => Next::Serve,
        }
    }

    /// Answers a command that changes nothing. Who asked may have gone away.
    fn reply(&self, command: Command, answer: Result<(), Error>) {
        let row = self.snapshots.borrow().row.clone();
        match (command, answer) {
            (Command::Pause { done, .. } | Command::Resume { done } | Command::Restore { done, .. }, answer) => {
                drop(done.send(answer.map(|()| row)));
            }
            (Command::Take { done, .. }, Err(error)) => drop(done.send(Err(error))),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISHES: [Wish; 4] = [Wish::Pause, Wish::Resume, Wish::Take, Wish::Restore];

    fn verdict(state: State, wish: Wish) -> Verdict {
        Situation { state, is_connected: true, is_saved: state != State::Running }.verdict(wish)
    }

    #[test]
    fn what_is_going_on_is_waited_for() {
        for state in [State::Pausing, State::Resuming, State::Forking] {
            for wish in WISHES {
                assert!(matches!(verdict(state, wish), Verdict::Later | Verdict::Already), "{state} {wish:?}");
            }
        }
        assert_eq!(verdict(State::Pausing, Wish::Resume), Verdict::Later);
        assert_eq!(verdict(State::Resuming, Wish::Pause), Verdict::Later);
    }

    #[test]
    fn what_waits_is_decided_when_it_is_over() {
        for state in State::ALL.into_iter().filter(|state| !state.is_transient()) {
            for wish in WISHES {
                assert_ne!(verdict(state, wish), Verdict::Later, "{state} {wish:?}");
            }
        }
    }

    #[test]
    fn what_has_ended_or_is_not_there_yet_is_refused() {
        for state in [State::Creating, State::Destroying, State::Destroyed, State::Failed] {
            for wish in WISHES {
                assert_eq!(verdict(state, wish), Verdict::Refused, "{state} {wish:?}");
            }
        }
    }

    #[test]
    fn an_error_is_a_pause_when_something_is_saved() {
        assert_eq!(verdict(State::Error, Wish::Pause), Verdict::Keep);
        let nothing = Situation { state: State::Error, is_connected: false, is_saved: false };
        assert_eq!(nothing.verdict(Wish::Pause), Verdict::Refused);
    }
}
