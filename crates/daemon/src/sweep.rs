//! What has to be done at its time. Times lie in the store, not in timers: a daemon that was killed does on its next
//! start what fell due meanwhile, and a changed time needs nothing to be cancelled.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hutch_units::Bytes;
use tokio::time::MissedTickBehavior;

use crate::capacity::Supply;
use crate::core::Core;
use crate::metering;
use crate::owner::Command;
use crate::report::chain;
use crate::store::{StoreError, query};

/// How often expiries are looked for: how late an expiry may be.
const EXPIRY: Duration = Duration::from_secs(1);
/// After how many looks for expiries activity is stored and old rows are forgotten.
const ROUNDS: u32 = 10;

/// Sweeps until the daemon stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(EXPIRY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopped = std::pin::pin!(core.stopped());
    let mut round = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = &mut stopped => break,
        }
        log(expire(&core).await);
        log(metering::look(&core).await);
        guard_disk(&core, Supply::measure(core.data.root())).await;
        round = (round + 1) % ROUNDS;
        if round == 0 {
            log(store_activity(&core).await);
            log(forget(&core).await);
        }
    }
    log(store_activity(&core).await);
}

/// Takes down whose time is over.
pub(crate) async fn expire(core: &Arc<Core>) -> Result<(), StoreError> {
    let now = core.clock.now();
    for id in core.store.read("look for expired sandboxes", move |db| query::due(db, now)).await? {
        if let Some(handle) = core.registry.find(id) {
            // A full queue, or an owner that just ended, is looked at again in the next round.
            drop(handle.commands.try_send(Command::Due));
        }
    }
    Ok(())
}

/// Keeps the host's disk from filling up. Disks are sparse, and all together they may be larger than the host's:
/// when less than the floor is left, the sandbox that has written most is given up. One that has written little is
/// left alone: then it is not the sandboxes that fill the disk.
pub(crate) async fn guard_disk(core: &Arc<Core>, supply: Supply) {
    let floor = core.capacity.bounds().disk_floor_bytes;
    if supply.disk_bytes >= floor {
        return;
    }
    let disks: Vec<_> = core.registry.all().into_iter().map(|owner| (core.data.disk(owner.id), owner)).collect();
    let measured = tokio::task::spawn_blocking(move || {
        let used = |(path, owner): (PathBuf, _)| Some((hutch_image::disk::usage(&path).ok()?.0, owner));
        disks.into_iter().filter_map(used).max_by_key(|(used, _)| *used)
    });
    if let Ok(Some((used, owner))) = measured.await
        && used >= floor / 4
    {
        let used = Bytes(used);
        tracing::error!(id = %owner.id, %used, free = %Bytes(supply.disk_bytes), "the host's disk is nearly full");
        let reason = format!("the host's disk is nearly full, and this sandbox had written most to it: {used}");
        // A full queue is seen again in the next round.
        drop(owner.commands.try_send(Command::Evict { reason }));
    }
}

/// Stores when something was last done with each sandbox, where that changed.
async fn store_activity(core: &Arc<Core>) -> Result<(), StoreError> {
    let now = core.clock.now();
    let active: Vec<_> = core
        .registry
        .all()
        .into_iter()
        .filter_map(|handle| Some((handle.id, handle.activity.to_store(now)?)))
        .collect();
    if active.is_empty() {
        return Ok(());
    }
    core.store.write("store activity", move |db| query::touch(db, &active)).await
}

/// Forgets what is older than its retention.
pub(crate) async fn forget(core: &Arc<Core>) -> Result<(), StoreError> {
    let (now, keep) = (core.clock.now(), core.settings.retention);
    let forgotten = core.store.write("forget old rows", move |db| {
        query::forget_receipts_before(db, now.before(keep.receipts))?;
        query::forget_transitions_before(db, now.before(keep.transitions))?;
        query::delete(db, now.before(keep.destroyed), now.before(keep.failed))
    });
    let forgotten = forgotten.await?;
    if forgotten > 0 {
        tracing::debug!(forgotten, "forgot sandboxes that ended long ago");
    }
    Ok(())
}

fn log(result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::error!(error = chain(&error), "a sweep failed; it comes again");
    }
}
