//! What a start of the daemon does about what an earlier run left.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::audit;
use crate::core::Core;
use crate::lifecycle::State;
use crate::metrics::Count;
use crate::owner::{self, Beginning, Plan};
use crate::report::chain;
use crate::store::{StoreError, query};

/// How long readiness waits for machines that do not answer. They are tried on in the background.
const PATIENCE: Duration = Duration::from_millis(1000);

/// Gives every sandbox that may have something on the host its owner task, and returns without waiting for them.
/// From here on requests find the sandboxes.
pub(crate) async fn take_over(core: &Arc<Core>) -> Result<Vec<owner::Handle>, StoreError> {
    let rows = core.store.read("read the sandboxes of an earlier run", query::held).await?;
    let begin = |row| {
        let plan = Plan::of(&row);
        tracing::debug!(id = %row.id, state = %row.state, ?plan, "found a sandbox of an earlier run");
        let beginning = Beginning { row, plan, place: None, since: Instant::now(), turn: None };
        owner::spawn(core, beginning)
    };
    Ok(rows.into_iter().map(begin).collect())
}

/// Waits until the machines that live are found again, and removes what has no owner.
pub(crate) async fn settle(core: &Arc<Core>, handles: Vec<owner::Handle>) {
    sweep_snapshots(core);
    let found = handles.len();
    let settled = handles
        .iter()
        .map(|handle| handle.wait_for(|snapshot| snapshot.machine.is_some() || snapshot.row.state != State::Running));
    if tokio::time::timeout(PATIENCE, join_all(settled)).await.is_err() {
        tracing::warn!("not every machine answers yet; going on without waiting for the rest");
    }
    let adopted = core.metrics.counted(Count::Adopted);
    tracing::info!(found, adopted, "took over the sandboxes of an earlier run");
}

/// Removes what image builds of an earlier run left. In the background: it may be much, and no sandbox needs it gone.
pub(crate) fn sweep_builds(core: &Arc<Core>) {
    let source = core.images.source();
    tokio::task::spawn_blocking(move || match source.sweep() {
        Ok(0) => {}
        Ok(removed) => tracing::warn!(removed, "removed what killed image builds left in the cache"),
        Err(error) => tracing::error!(error = chain(&error), "the cache of images cannot be put in order"),
    });
}

/// Removes what an earlier run left of snapshots that nobody is to have. In the background: it waits for the sandboxes
/// that were being made from them to be taken back.
fn sweep_snapshots(core: &Arc<Core>) {
    let core = Arc::clone(core);
    tokio::spawn(async move { crate::snapshots::remove_stale(&core).await });
}

/// Removes every artefact that belongs to no sandbox. What cannot be removed stays in the audit.
pub(crate) async fn remove_orphans(core: &Arc<Core>) {
    let findings = match audit::take(&core.engine, &core.data, || audit::held_by_store(&core.store)).await {
        Ok(findings) => findings,
        Err(error) => {
            tracing::error!(error = chain(&error), "the host cannot be audited");
            return;
        }
    };
    let mut names = HashSet::new();
    for orphan in findings.iter().filter(|finding| finding.owner.is_none()) {
        match audit::remove(&core.engine, orphan).await {
            Ok(()) => {
                core.metrics.count(Count::OrphanRemoved);
                if names.insert(orphan.name()) {
                    tracing::warn!(artefact = orphan.name(), "removed an artefact that belongs to no sandbox");
                }
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(artefact = orphan.name(), error, "an artefact without an owner cannot be removed");
            }
        }
    }
}
