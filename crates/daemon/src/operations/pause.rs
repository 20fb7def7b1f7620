//! Pausing and resuming.

use std::sync::Arc;
use std::time::Duration;

use hutch_api::{Caller, Error, ErrorKind, SandboxReference, SandboxView, Until};
use tokio::sync::oneshot;

use super::find::Found;
use crate::core::Core;
use crate::lifecycle::State;
use crate::owner::{self, Command, Handle};
use crate::store::SandboxRow;
use crate::view;

/// How long a request waits for a change of state to be over, at most.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) async fn pause(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    until: Until,
) -> Result<SandboxView, Error> {
    let handle = living(core, caller, reference, "paused").await?;
    let row = ask(core, &handle, |done| Command::Pause { cause: owner::ASKED.into(), done }).await?;
    let row = if until == Until::Settled { settled(&handle, row, State::Pausing).await } else { row };
    match row.state {
        // The pause did not work; the row keeps the reason until the next one. Without a reason it was paused, and
        // somebody has resumed it since.
        State::Running if until == Until::Settled && row.reason.is_some() => {
            let reason = row.reason.as_deref().unwrap_or_default();
            Err(Error::new(ErrorKind::Internal, format!("the sandbox was not paused and runs on: {reason}")))
        }
        _ => answer(core, &row),
    }
}

pub(super) async fn resume(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    until: Until,
) -> Result<SandboxView, Error> {
    let handle = living(core, caller, reference, "resumed").await?;
    let row = ask(core, &handle, |done| Command::Resume { done }).await?;
    let row = if until == Until::Settled { settled(&handle, row, State::Resuming).await } else { row };
    match row.state {
        State::Error if until == Until::Settled => Err(not_back(&row)),
        _ => answer(core, &row),
    }
}

/// The error of a sandbox that did not come back.
pub(super) fn not_back(row: &SandboxRow) -> Error {
    let reason = row.reason.as_deref().unwrap_or("the service's log has the details");
    let kind = if reason.starts_with("the saved machine") { ErrorKind::SnapshotUnusable } else { ErrorKind::Internal };
    Error::new(kind, format!("the sandbox did not come back: {reason}"))
}

/// The owner of a sandbox that has not ended.
pub(super) async fn living(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    to_be: &str,
) -> Result<Handle, Error> {
    match core.find(caller, reference).await? {
        Found::Live(handle) => {
            handle.activity.touch(core.clock.now());
            Ok(handle)
        }
        Found::Row(row) => {
            let message = format!("sandbox is {}; it must be running or paused to be {to_be}", row.state);
            Err(Error::new(ErrorKind::WrongState, message))
        }
    }
}

/// Sends a command to an owner and waits for the answer.
pub(super) async fn ask<T>(
    core: &Core,
    handle: &Handle,
    command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command,
) -> Result<T, Error> {
    let (done, answer) = oneshot::channel();
    let gone = || match *core.stopping.borrow() {
        true => Error::new(ErrorKind::Unavailable, "the service is stopping").with_retry_after(Duration::from_secs(1)),
        false => crate::owner::ended(),
    };
    handle.commands.send(command(done)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Waits until the sandbox is no longer in a state that it passes through.
pub(super) async fn settled(handle: &Handle, row: Arc<SandboxRow>, passing: State) -> Arc<SandboxRow> {
    if row.state != passing {
        return row;
    }
    let passed = handle.wait_for(|snapshot| snapshot.row.state != passing);
    match tokio::time::timeout(PATIENCE, passed).await {
        Ok(snapshot) => snapshot.row,
        Err(_) => handle.snapshot().row,
    }
}

/// The sandbox as it is, unless it is on its way out.
pub(super) fn answer(core: &Core, row: &SandboxRow) -> Result<SandboxView, Error> {
    match row.state {
        State::Failed => {
            let reason = row.reason.as_deref().unwrap_or("the service's log has the details");
            Err(Error::new(ErrorKind::SandboxLost, format!("the sandbox was lost: {reason}")))
        }
        State::Destroying | State::Destroyed => {
            Err(Error::new(ErrorKind::Conflict, "the sandbox was destroyed meanwhile"))
        }
        _ => Ok(view::sandbox(row, &core.settings)),
    }
}
