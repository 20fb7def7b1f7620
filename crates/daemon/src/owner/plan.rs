//! What an owner task has to do for a row that an earlier run of the daemon left.

use crate::lifecycle::State;
use crate::store::{Desired, SandboxRow};

/// Where an owner task begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Make it: the row is new.
    Create,
    /// Find the running machine again.
    Adopt,
    /// Keep it as it is; nothing of it runs.
    Hold,
    /// It was being paused: find out how far that came.
    FinishPause,
    /// It was being brought back: find out how far that came.
    FinishResume,
    /// It was half made: take back what there is of it.
    Undo,
    /// Take it down.
    Destroy,
    /// It has ended, but something of it may be left on the host.
    Clean,
    /// There is nothing to do.
    Nothing,
}

impl Plan {
    /// The plan for a row of the store.
    pub(crate) fn of(row: &SandboxRow) -> Self {
        match row.state {
            State::Destroyed | State::Failed if row.slot.is_some() => Self::Clean,
            State::Destroyed | State::Failed => Self::Nothing,
            State::Destroying => Self::Destroy,
            _ if row.desired == Desired::Destroyed => Self::Destroy,
            State::Creating => Self::Undo,
            State::Running => Self::Adopt,
            State::Pausing => Self::FinishPause,
            State::Resuming => Self::FinishResume,
            // A copy that was being made of it has an owner of its own.
            State::Paused | State::Forking | State::Error => Self::Hold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;

    #[test]
    fn every_row_has_a_plan() {
        let plan = |state, desired, slot| Plan::of(&SandboxRow { state, desired, slot, ..tests::row() });
        assert_eq!(plan(State::Creating, Desired::Running, Some(1)), Plan::Undo);
        assert_eq!(plan(State::Creating, Desired::Destroyed, Some(1)), Plan::Destroy);
        assert_eq!(plan(State::Running, Desired::Running, Some(1)), Plan::Adopt);
        assert_eq!(plan(State::Running, Desired::Destroyed, Some(1)), Plan::Destroy);
        assert_eq!(plan(State::Destroying, Desired::Destroyed, Some(1)), Plan::Destroy);
        for ended in [State::Destroyed, State::Failed] {
            assert_eq!(plan(ended, Desired::Destroyed, Some(1)), Plan::Clean);
            assert_eq!(plan(ended, Desired::Running, None), Plan::Nothing);
        }
    }

    #[test]
    fn only_what_holds_nothing_is_left_alone() {
        for state in State::ALL {
            let row = SandboxRow { state, slot: Some(1), ..tests::row() };
            assert_ne!(Plan::of(&row), Plan::Nothing, "{state}");
        }
    }
}
