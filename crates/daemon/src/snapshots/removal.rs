//! Removing snapshots.

use std::sync::Arc;
use std::time::Duration;

use hutch_units::SnapshotId;

use super::files;
use crate::core::Core;
use crate::report::chain;
use crate::store::query;

/// How often it is looked whether anything still begins from a snapshot.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long after a failure the next attempt follows.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Takes a snapshot out of use, waits until nothing begins from it, and removes it. Tries until it is gone, or the
/// daemon stops: the next start goes on.
pub(crate) async fn remove(core: &Arc<Core>, id: SnapshotId) {
    loop {
        match attempt(core, id).await {
            Ok(()) => return,
            Err(detail) => tracing::error!(%id, detail, "a snapshot cannot be removed; trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(TRY_AGAIN) => {}
            () = core.stopped() => return,
        }
    }
}

async fn attempt(core: &Arc<Core>, id: SnapshotId) -> Result<(), String> {
    let retired = core.store.write("retire a snapshot", move |db| query::retire_snapshot(db, id)).await;
    retired.map_err(|error| chain(&error))?;
    loop {
        let begun = core.store.read("look who begins from a snapshot", move |db| query::begun_from(db, id)).await;
        if begun.map_err(|error| chain(&error))? == 0 {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    files::remove(core.data.snapshot(id)).await.map_err(|error| chain(&error))?;
    let forgotten = core.store.write("forget a snapshot", move |db| query::delete_snapshot(db, id)).await;
    forgotten.map_err(|error| chain(&error))
}

/// Removes what an earlier run of the daemon left half written, half removed, or of its forks.
pub(crate) async fn remove_stale(core: &Arc<Core>) {
    let stale = match core.store.read("look for broken snapshots", query::stale_snapshots).await {
        Ok(stale) => stale,
        Err(error) => {
            tracing::error!(error = chain(&error), "broken snapshots cannot be looked for");
            return;
        }
    };
    for id in stale {
        tracing::warn!(%id, "removing a snapshot that an earlier run left");
        remove(core, id).await;
    }
}
