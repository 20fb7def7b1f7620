//! The life of a sandbox as one table: which event leads from which state to which.
//!
//! ```text
//!                     PauseAsked            Paused
//!            +---------------------> pausing -------> paused <------------+
//!            |  <- PauseFailed -        |              |   |   ForkEnded  |
//!            |                          | Lost         |   +--> forking --+
//!  creating -+-> running                v              |     ForkAsked
//!    |  Started   |  ^  \-- Lost --> failed            | ResumeAsked
//!    |            |  |                ^  |             v
//!    +-- StartFailed / Lost ----------+  |          resuming -- ResumeFailed / Lost --> error
//!                    |                   |             |  ^                              |
//!                    +--- Resumed -------|-------------+  +--------- ResumeAsked --------+
//!                                        |
//!  every state but destroyed -- DestroyAsked --> destroying -- Destroyed --> destroyed
//!
//!  creating -- Paused --> paused                    a copy that is not to run yet
//!  running, paused, error -- RestoreAsked --> resuming   with a snapshot in place of its own saved machine
//!  error -- PauseAsked --> paused                   what is saved stays saved
//! ```
//!
//! The happy story is `creating`, `running`, any number of pauses, `destroying`, `destroyed`. A sandbox whose
//! machine was lost ends as `failed`; one that could not be resumed waits in `error`, from where it may be
//! resumed again. Destroying works from every state: from `failed` it only gives the row its last word, because
//! what the sandbox held on the host was taken back when it failed.
//!
//! Here are decisions only. The owner task of each sandbox ([`crate::owner`]) applies them and does the work.

use std::fmt;

/// Where a sandbox is in its life. The words are the API's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Being made: the disk, the jail, the first boot.
    Creating,
    /// The agent answers.
    Running,
    /// Being written out.
    Pausing,
    /// Written out; nothing runs.
    Paused,
    /// Being brought back.
    Resuming,
    /// Being copied while paused.
    Forking,
    /// Could not be brought back; may be tried again.
    Error,
    /// Being taken down.
    Destroying,
    /// Gone on request.
    Destroyed,
    /// Gone against the owner's will.
    Failed,
}

/// What happens to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The machine booted and its agent answered.
    Started,
    /// Making it did not work; what was made is undone.
    StartFailed,
    /// Somebody wants it paused.
    PauseAsked,
    /// Memory and disk are saved and the machine is gone.
    Paused,
    /// Saving did not work and the machine runs on.
    PauseFailed,
    /// Somebody wants it back.
    ResumeAsked,
    /// The machine is back and its agent answered.
    Resumed,
    /// Bringing it back did not work.
    ResumeFailed,
    /// Somebody wants it to be what it was when a snapshot was taken.
    RestoreAsked,
    /// Somebody wants a copy.
    ForkAsked,
    /// The copy is made, or given up: for the source it is the same.
    ForkEnded,
    /// Somebody, or its expiry, wants it gone.
    DestroyAsked,
    /// Nothing of it is left on the host.
    Destroyed,
    /// Its machine died, or was not there any more when the daemon came back.
    Lost,
}

/// The event has no meaning in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox is {state}, so {event:?} does not apply")]
pub struct Refused {
    /// The state the sandbox is in and stays in.
    pub state: State,
    /// The event that was refused.
    pub event: Event,
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Creating,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Forking,
        Self::Error,
        Self::Destroying,
        Self::Destroyed,
        Self::Failed,
    ];

    /// The state that `event` leads to. Events that ask for what already is lead back to the same state.
    ///
    /// # Errors
    /// [`Refused`] when the event has no meaning here; the state does not change.
    pub fn after(self, event: Event) -> Result<Self, Refused> {
        use Event as E;
        let next = match (self, event) {
            (Self::Creating, E::Started) | (Self::Resuming, E::Resumed) | (Self::Pausing, E::PauseFailed) => {
                Self::Running
            }
            (Self::Creating, E::StartFailed | E::Lost) | (Self::Running | Self::Pausing, E::Lost) => Self::Failed,
            (Self::Running, E::PauseAsked) | (Self::Pausing, E::PauseAsked) => Self::Pausing,
            (Self::Creating | Self::Pausing, E::Paused)
            | (Self::Forking, E::ForkEnded)
            | (Self::Paused | Self::Error, E::PauseAsked) => Self::Paused,
            (Self::Paused | Self::Error | Self::Resuming, E::ResumeAsked)
            | (Self::Running | Self::Paused | Self::Error, E::RestoreAsked) => Self::Resuming,
            (Self::Running, E::ResumeAsked) => Self::Running,
            (Self::Paused, E::ForkAsked) => Self::Forking,
            (Self::Resuming, E::ResumeFailed | E::Lost) => Self::Error,
            (Self::Destroying, E::Destroyed) | (Self::Destroyed, E::DestroyAsked) => Self::Destroyed,
            // A machine that dies while it is taken down only does our work for us.
            (Self::Destroying, E::Lost) => Self::Destroying,
            (_, E::DestroyAsked) => Self::Destroying,
            (state, event) => return Err(Refused { state, event }),
        };
        Ok(next)
    }

    /// The word of the API and of the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Forking => "forking",
            Self::Error => "error",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
            Self::Failed => "failed",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the row is kept for reading only: the name is free and nothing is left on the host.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Destroyed | Self::Failed)
    }

    /// Whether somebody is working on it and will lead it further without being asked.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Creating | Self::Pausing | Self::Resuming | Self::Forking | Self::Destroying)
    }
}

impl Event {
    /// The word in the trail.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::StartFailed => "start-failed",
            Self::PauseAsked => "pause-asked",
            Self::Paused => "paused",
            Self::PauseFailed => "pause-failed",
            Self::ResumeAsked => "resume-asked",
            Self::Resumed => "resumed",
            Self::ResumeFailed => "resume-failed",
            Self::RestoreAsked => "restore-asked",
            Self::ForkAsked => "fork-asked",
            Self::ForkEnded => "fork-ended",
            Self::DestroyAsked => "destroy-asked",
            Self::Destroyed => "destroyed",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVENTS: [Event; 14] = [
        Event::Started,
        Event::StartFailed,
        Event::PauseAsked,
        Event::Paused,
        Event::PauseFailed,
        Event::ResumeAsked,
        Event::Resumed,
        Event::ResumeFailed,
        Event::RestoreAsked,
        Event::ForkAsked,
        Event::ForkEnded,
        Event::DestroyAsked,
        Event::Destroyed,
        Event::Lost,
    ];

    /// What is asked by a user, as against what is reported by those who do the work.
    fn is_asked(event: Event) -> bool {
        use Event as E;
        matches!(event, E::PauseAsked | E::ResumeAsked | E::RestoreAsked | E::ForkAsked | E::DestroyAsked)
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        prop::collection::vec(prop::sample::select(EVENTS.to_vec()), 0..40)
    }

    /// The state after these events, where a refused one changes nothing.
    fn run(events: &[Event]) -> State {
        events.iter().fold(State::Creating, |state, event| state.after(*event).unwrap_or(state))
    }

    #[test]
    fn words_and_states_are_one_to_one() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
        assert_eq!(State::parse("gone"), None);
    }

    #[test]
    fn asking_twice_is_asking_once() {
        for state in State::ALL {
            for event in [Event::PauseAsked, Event::ResumeAsked, Event::DestroyAsked] {
                if let Ok(next) = state.after(event) {
                    assert_eq!(next.after(event), Ok(next), "{state} {event:?}");
                }
            }
        }
    }

    #[test]
    fn every_transient_state_is_left_by_a_report_alone() {
        for state in State::ALL.into_iter().filter(|state| state.is_transient()) {
            let settles = EVENTS
                .into_iter()
                .filter(|event| !is_asked(*event))
                .any(|event| state.after(event).is_ok_and(|next| !next.is_transient()));
            assert!(settles, "{state}");
        }
    }

    #[test]
    fn a_settled_state_is_not_left_by_a_report_unless_the_machine_is_lost() {
        for state in State::ALL.into_iter().filter(|state| !state.is_transient()) {
            for event in EVENTS.into_iter().filter(|event| !is_asked(*event) && *event != Event::Lost) {
                assert!(state.after(event).is_err(), "{state} {event:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn destroying_works_after_any_history(history in events()) {
            let asked = run(&history).after(Event::DestroyAsked).expect("destroying applies everywhere");
            let gone = if asked == State::Destroyed { asked } else { asked.after(Event::Destroyed).expect("destroying ends") };
            prop_assert_eq!(gone, State::Destroyed);
        }

        #[test]
        fn destroyed_is_for_ever(history in events(), more in events()) {
            let mut state = run(&history);
            let was_destroyed = state == State::Destroyed;
            for event in more {
                state = state.after(event).unwrap_or(state);
            }
            prop_assert!(!was_destroyed || state == State::Destroyed);
        }

        #[test]
        fn nothing_leads_back_to_creating(history in events(), event in prop::sample::select(EVENTS.to_vec())) {
            prop_assert_ne!(run(&history).after(event), Ok(State::Creating));
        }

        #[test]
        fn a_failed_sandbox_never_runs_again(history in events(), more in events()) {
            let mut state = run(&history);
            let failed = state == State::Failed;
            for event in more {
                state = state.after(event).unwrap_or(state);
                prop_assert!(!failed || matches!(state, State::Failed | State::Destroying | State::Destroyed));
            }
        }

        #[test]
        fn pausing_and_destroying_in_any_order_never_resurrects(mut history in events()) {
            // Once destruction was asked for, nothing but destruction follows: a pause or a resume that was queued
            // before it and reports after it cannot bring the sandbox back.
            history.push(Event::DestroyAsked);
            let mut state = run(&history);
            for event in EVENTS.into_iter().chain(EVENTS) {
                state = state.after(event).unwrap_or(state);
                prop_assert!(matches!(state, State::Destroying | State::Destroyed));
            }
        }
    }
}
