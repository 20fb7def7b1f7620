//! Looking at sandboxes, changing them, taking them down.

use std::sync::Arc;
use std::time::Duration;

use hutch_api::{
    Caller, DestroyedSandbox, Error, Page, PageRequest, SandboxFilter, SandboxReference, SandboxStatus, SandboxView,
    UpdateSandbox,
};
use tokio::sync::oneshot;

use super::find::Found;
use crate::core::Core;
use crate::lifecycle::State;
use crate::owner::{self, Change, Command};
use crate::store::{Filter, query};
use crate::view;

/// How often a request looks again for the owner of a sandbox whose last one has just ended.
const LOOKS: u32 = 50;
/// How long it waits in between.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn list(
    core: &Arc<Core>,
    caller: &Caller,
    filter: SandboxFilter,
    page: PageRequest,
) -> Result<Page<SandboxView>, Error> {
    let states = match filter.status {
        Some(status) => vec![view::state(status)],
        None => State::ALL.into_iter().filter(|state| !state.is_terminal()).collect(),
    };
    let filter = Filter {
        account: Some(caller.account.clone()),
        states,
        name: filter.name.map(|name| name.as_str().to_owned()),
        labels: filter.labels,
    };
    let limit = u32::try_from(page.limit).unwrap_or(u32::MAX);
    let listed = core.store.read("list sandboxes", move |db| query::list(db, &filter, limit, page.offset)).await;
    let listed = listed.map_err(|error| Error::internal(&error))?;
    let views = listed.rows.iter().map(|row| view::sandbox(row, &core.settings)).collect();
    Ok(Page::new(views, listed.total, page))
}

pub(super) async fn get(core: &Arc<Core>, caller: &Caller, reference: &SandboxReference) -> Result<SandboxView, Error> {
    let found = core.find(caller, reference).await?;
    Ok(view::sandbox(&found.row(), &core.settings))
}

pub(super) async fn update(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    change: UpdateSandbox,
) -> Result<SandboxView, Error> {
    let found = core.find(caller, reference).await?;
    let row = found.row();
    let Found::Live(handle) = found else { return Err(owner::ended()) };
    if row.state == State::Destroying || row.state.is_terminal() {
        return Err(owner::ended());
    }
    let now = core.clock.now();
    handle.activity.touch(now);
    let auto_pause = match (change.disable_auto_pause, change.auto_pause_after_seconds) {
        (Some(true), _) => Some(None),
        (_, Some(seconds)) => Some(Some(seconds)),
        _ => None,
    };
    let auto_destroy = match (change.disable_auto_destroy, change.auto_destroy_after_seconds) {
        (Some(true), _) => Some(None),
        (_, Some(seconds)) => Some(Some(seconds)),
        _ => None,
    };
    let expires_at = change.lifetime_seconds.map(|seconds| {
        let lifetime = Duration::from_secs(u64::from(seconds));
        (seconds > 0).then(|| now.after(lifetime))
    });
    let (ingress, labels) = (change.ingress_enabled, change.labels);
    let change = Change {
        auto_pause_after_seconds: auto_pause,
        auto_destroy_after_seconds: auto_destroy,
        ingress,
        expires_at,
        labels,
    };
    let (done, answer) = oneshot::channel();
    let sent = handle.commands.send(Command::Update { change, done }).await;
    sent.map_err(|_| owner::ended())?;
    let row = answer.await.map_err(|_| owner::ended())??;
    Ok(view::sandbox(&row, &core.settings))
}

pub(super) async fn destroy(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
) -> Result<DestroyedSandbox, Error> {
    let mut reference = reference.clone();
    for _ in 0..LOOKS {
        let handle = match core.find(caller, &reference).await? {
            Found::Live(handle) => handle,
            Found::Row(row) if row.state == State::Destroyed => {
                return Ok(DestroyedSandbox { id: row.id, status: SandboxStatus::Destroyed });
            }
            // A failed sandbox holds nothing any more; going through its owner gives the row its last word.
            Found::Row(row) if row.state == State::Failed => core.own(*row),
            // A copy whose source is still being saved: its maker finds it gone.
            Found::Row(row) if row.state == State::Creating && row.origin.is_some() => core.own(*row),
            Found::Row(_) => {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
        };
        // Once found, it is meant by its id: its name may pass to another sandbox as soon as it is gone.
        reference = SandboxReference::Id(handle.id);
        let (done, gone) = oneshot::channel();
        if handle.commands.send(Command::Destroy { cause: "asked by its owner".into(), done }).await.is_ok() {
            match tokio::time::timeout(core.settings.destroy_patience, gone).await {
                Ok(Ok(())) => return Ok(DestroyedSandbox { id: handle.id, status: SandboxStatus::Destroyed }),
                Err(_) => return Ok(DestroyedSandbox { id: handle.id, status: SandboxStatus::Destroying }),
                // The owner ended without having seen the command.
                Ok(Err(_)) => {}
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let found = core.find(caller, &reference).await?.row();
    Ok(DestroyedSandbox { id: found.id, status: SandboxStatus::Destroying })
}
