//! Which sandbox a request means, and whether it can be used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hutch_api::{Caller, Error, ErrorKind, SandboxReference};
use hutch_engine::Machine;

use crate::core::Core;
use crate::lifecycle::State;
use crate::owner::{self, Beginning, Handle, Plan};
use crate::store::{SandboxRow, query};

/// How long a request waits for the connection to a machine that is being found again.
const RECONNECT: Duration = Duration::from_secs(5);

/// A sandbox of the caller's.
#[derive(Debug)]
pub(super) enum Found {
    /// It has an owner task.
    Live(Handle),
    /// It has ended, or is being recorded right now.
    Row(Box<SandboxRow>),
}

/// What a machine is wanted for; decides the words of a refusal.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// To run a command.
    Command,
    /// To read or write files.
    Files,
}

/// A sandbox that runs.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) handle: Handle,
    pub(super) row: Arc<SandboxRow>,
    pub(super) machine: Arc<Machine>,
}

impl Found {
    /// Its row as of now.
    pub(super) fn row(&self) -> Arc<SandboxRow> {
        match self {
            Self::Live(handle) => handle.snapshot().row,
            Self::Row(row) => Arc::new(row.as_ref().clone()),
        }
    }
}

impl Core {
    /// The sandbox that a request means. That of another account is not found.
    pub(super) async fn find(self: &Arc<Self>, caller: &Caller, reference: &SandboxReference) -> Result<Found, Error> {
        if let SandboxReference::Id(id) = reference {
            match self.registry.find(*id) {
                Some(handle) if *handle.account == *caller.account => return Ok(Found::Live(handle)),
                Some(_) => return Err(reference.not_found()),
                None => {}
            }
        }
        let (account, wanted) = (caller.account.clone(), reference.clone());
        let found = self.store.read("look up a sandbox", move |db| match &wanted {
            SandboxReference::Id(id) => query::find(db, &id.to_string()),
            SandboxReference::Name(name) => query::find_named(db, &account, name.as_str()),
        });
        let row = found.await.map_err(|error| Error::internal(&error))?;
        let row = row.filter(|row| row.account == caller.account).ok_or_else(|| reference.not_found())?;
        if let Some(handle) = self.registry.find(row.id) {
            return Ok(Found::Live(handle));
        }
        // A row that is not at its end has an owner, unless it is just being recorded, or the daemon is just
        // starting, or its owner's task has panicked. In the last two cases it gets one here.
        let orphaned = !matches!(row.state, State::Creating | State::Destroyed | State::Failed);
        if orphaned && !*self.stopping.borrow() {
            return Ok(Found::Live(self.own(row)));
        }
        Ok(Found::Row(Box::new(row)))
    }

    /// Gives a row of the store an owner task.
    pub(super) fn own(self: &Arc<Self>, row: SandboxRow) -> Handle {
        let plan = if row.state == State::Failed { Plan::Destroy } else { Plan::of(&row) };
        owner::spawn(self, Beginning { row, plan, place: None, since: Instant::now(), turn: None })
    }

    /// The sandbox that a request means, ready to be used. Counts as activity.
    pub(super) async fn ready_for(
        self: &Arc<Self>,
        caller: &Caller,
        reference: &SandboxReference,
        purpose: Purpose,
    ) -> Result<Ready, Error> {
        let handle = match self.find(caller, reference).await? {
            Found::Live(handle) => handle,
            Found::Row(row) => return Err(not_running(&row, purpose)),
        };
        handle.activity.touch(self.clock.now());
        let mut snapshot = handle.snapshot();
        if snapshot.machine.is_none() && snapshot.row.state == State::Running {
            let found = handle.wait_for(|now| now.machine.is_some() || now.row.state != State::Running);
            snapshot = tokio::time::timeout(RECONNECT, found).await.unwrap_or(snapshot);
        }
        // One that comes back is as good as there.
        if snapshot.row.state == State::Resuming {
            let found = handle.wait_for(|now| now.row.state != State::Resuming);
            snapshot = tokio::time::timeout(RECONNECT, found).await.unwrap_or(snapshot);
        }
        let row = snapshot.row;
        match snapshot.machine {
            Some(machine) => Ok(Ready { handle, row, machine }),
            None if row.state == State::Running => {
                let message = "the service is looking for the sandbox's machine, which does not answer; try again";
                Err(Error::new(ErrorKind::Unavailable, message).with_retry_after(Duration::from_secs(1)))
            }
            None => Err(not_running(&row, purpose)),
        }
    }
}

/// The refusal for a sandbox that does not run.
fn not_running(row: &SandboxRow, purpose: Purpose) -> Error {
    let (before, to) = match purpose {
        Purpose::Command => ("executing commands", "to execute commands"),
        Purpose::Files => ("accessing files", "to access files"),
    };
    let message = match (row.state, &row.reason) {
        (State::Paused, _) => format!("sandbox is paused; resume it before {before}"),
        (State::Failed, Some(reason)) => format!("sandbox is failed: {reason}"),
        (State::Error, Some(reason)) => format!("sandbox is in error: {reason}; resume it to try again"),
        (state, _) => format!("sandbox is {state}; it must be running {to}"),
    };
    Error::new(ErrorKind::WrongState, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;

    #[test]
    fn a_refusal_says_the_state_and_what_to_do() {
        let refuse = |state, purpose| {
            let row = SandboxRow { state, reason: Some("it died".to_owned()), ..tests::row() };
            not_running(&row, purpose).message.into_owned()
        };
        assert_eq!(refuse(State::Paused, Purpose::Files), "sandbox is paused; resume it before accessing files");
        assert_eq!(refuse(State::Paused, Purpose::Command), "sandbox is paused; resume it before executing commands");
        assert_eq!(refuse(State::Failed, Purpose::Command), "sandbox is failed: it died");
        assert_eq!(
            refuse(State::Destroyed, Purpose::Command),
            "sandbox is destroyed; it must be running to execute commands"
        );
    }
}
