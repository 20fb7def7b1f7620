//! Copies of a sandbox: one snapshot of the source, and as many sandboxes from it. All or none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hutch_api::{Caller, Error, ErrorKind, ForkSandbox, SandboxReference, SandboxView};
use hutch_units::{Mebibytes, SandboxId, SandboxName, SnapshotId};
use tokio::sync::oneshot;

use super::create::{bounded, refuse_unless_ready, refused_name, unavailable};
use super::pause::living;
use super::snapshots::{draft, fill};
use crate::capacity::{Place, Supply};
use crate::core::Core;
use crate::lifecycle::State;
use crate::metrics::Timing;
use crate::names;
use crate::owner::{self, Beginning, Command, Handle, Plan};
use crate::snapshots;
use crate::store::{Desired, NewSandbox, SandboxRow, SnapshotKind, SnapshotRow, Spec, query};
use crate::view;

/// What is to be made.
struct Order {
    since: Instant,
    source: Handle,
    snapshot: SnapshotRow,
    copies: Vec<NewSandbox>,
    /// A share of the memory for each copy that is to run.
    places: Vec<Place>,
}

pub(super) async fn fork(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    request: ForkSandbox,
) -> Result<Vec<SandboxView>, Error> {
    let since = Instant::now();
    refuse_unless_ready(core).await?;
    bounded("egress", request.egress.as_deref().unwrap_or_default())?;
    bounded("ssh_pubkeys", request.ssh_pubkeys.as_deref().unwrap_or_default())?;
    let source = living(core, caller, reference, "forked").await?;
    let row = source.snapshot().row;
    if !matches!(row.state, State::Running | State::Pausing | State::Paused | State::Resuming | State::Forking) {
        let message = format!("sandbox is {}; it must be running or paused to be forked", row.state);
        return Err(Error::new(ErrorKind::WrongState, message));
    }
    let snapshot = draft(core, &row, SnapshotKind::Fork);
    let copies = (0..request.copies()).map(|position| copy(core, caller, &row, &request, snapshot.id, position));
    let copies: Vec<NewSandbox> = copies.collect::<Result<_, _>>()?;
    let places = if request.start_paused == Some(true) { Vec::new() } else { places(core, &row, copies.len())? };
    let order = Order { since, source, snapshot, copies, places };
    // In a task of its own: a caller that goes away now must not leave copies half made.
    let making = tokio::spawn(make(Arc::clone(core), order));
    making.await.map_err(|error| Error::internal(&error))?
}

/// One copy, as it is recorded before anything of it is made.
fn copy(
    core: &Core,
    caller: &Caller,
    source: &SandboxRow,
    request: &ForkSandbox,
    snapshot: SnapshotId,
    position: u32,
) -> Result<NewSandbox, Error> {
    let names = match request.name_of(position).filter(|name| !name.is_empty()) {
        Some(name) => vec![SandboxName::parse(&name).map_err(|error| Error::field("name", error.to_string()))?],
        None => names::candidates(),
    };
    let spec = &source.spec;
    let now = core.clock.now();
    let auto_pause = match request.disable_auto_pause {
        Some(true) => None,
        _ => request.auto_pause_after_seconds.or(source.auto_pause_after_seconds),
    };
    let auto_destroy = match request.disable_auto_destroy {
        Some(true) => None,
        _ => request.auto_destroy_after_seconds.or(source.auto_destroy_after_seconds),
    };
    Ok(NewSandbox {
        id: SandboxId::generate(),
        account: source.account.clone(),
        names,
        spec: Spec {
            envs: request.envs.clone().unwrap_or_else(|| spec.envs.clone()),
            egress: request.egress.clone().unwrap_or_else(|| spec.egress.clone()),
            ssh_pubkeys: request.ssh_pubkeys.clone().unwrap_or_else(|| spec.ssh_pubkeys.clone()),
            created_by: Some(caller.key.clone()),
            ..spec.clone()
        },
        labels: request.labels.clone().unwrap_or_else(|| source.labels.clone()),
        auto_pause_after_seconds: auto_pause,
        auto_destroy_after_seconds: auto_destroy,
        ingress: request.ingress_enabled.unwrap_or(source.ingress),
        expires_at: request.lifetime_seconds.map(|seconds| now.after(Duration::from_secs(u64::from(seconds)))),
        receipt: None,
        desired: if request.start_paused == Some(true) { Desired::Paused } else { Desired::Running },
        template: source.template.clone(),
        origin: Some(snapshot),
        snapshot: source.snapshot,
        parent: source.parent,
        forked_from: Some(source.id),
    })
}

/// Room for all, before the first side effect.
fn places(core: &Core, source: &SandboxRow, count: usize) -> Result<Vec<Place>, Error> {
    let supply = Supply::measure(core.data.root());
    let memory = Mebibytes(source.spec.memory_mib);
    (0..count)
        .map(|_| core.capacity.admit(memory, supply).map_err(|no_room| unavailable(core, no_room.to_string())))
        .collect()
}

async fn make(core: Arc<Core>, order: Order) -> Result<Vec<SandboxView>, Error> {
    let Order { since, source, snapshot, copies, places } = order;
    let id = snapshot.id;
    let names: Vec<Vec<String>> =
        copies.iter().map(|copy| copy.names.iter().map(ToString::to_string).collect()).collect();
    let (now, recorded) = (core.clock.now(), snapshot.clone());
    // The snapshot first; the copies' rows come with it, so that a name that is taken is known before the source
    // stands still.
    let rows = core.store.write("record a fork", move |db| {
        let rows = query::insert_all(db, copies, now)?;
        if rows.is_ok() {
            query::insert_snapshot(db, &recorded)?;
        }
        Ok(rows)
    });
    let rows = match rows.await.map_err(|error| Error::internal(&error))? {
        Ok(rows) => rows,
        Err(taken) => return Err(refused_name(taken, names.first().map_or(&[], Vec::as_slice))),
    };
    let filled = fill(&core, &source, snapshot).await;
    let mut places = places.into_iter();
    let handles: Vec<Handle> = rows
        .into_iter()
        .map(|row| {
            let plan = if filled.is_ok() { Plan::Create } else { Plan::Destroy };
            let beginning = Beginning { row, plan, place: places.next(), since, turn: None };
            owner::spawn(&core, beginning)
        })
        .collect();
    let made = join_all(handles.iter().map(|handle| handle.wait_for(|now| now.row.state != State::Creating))).await;
    if filled.is_ok() {
        let core = Arc::clone(&core);
        tokio::spawn(async move { snapshots::remove(&core, id).await });
    }
    let (_, taken) = filled?;
    let made: Vec<Arc<SandboxRow>> = made.into_iter().map(|snapshot| snapshot.row).collect();
    if let Some(broken) = made.iter().find(|row| !matches!(row.state, State::Running | State::Paused)) {
        let reason = broken.reason.clone().unwrap_or_else(|| "it was destroyed meanwhile".to_owned());
        take_back(&handles).await;
        return Err(Error::new(ErrorKind::Internal, format!("a copy could not be made, so none was: {reason}")));
    }
    core.metrics.time(Timing::Fork, since.elapsed());
    if let Some(stopped) = taken.stopped {
        core.metrics.time(Timing::ForkStall, stopped);
    }
    Ok(made.iter().map(|row| view::sandbox(row, &core.settings)).collect())
}

/// Takes the copies down that were made.
async fn take_back(handles: &[Handle]) {
    let gone = handles.iter().map(|handle| async {
        let (done, gone) = oneshot::channel();
        let cause = "another copy of the same fork could not be made".into();
        if handle.commands.send(Command::Destroy { cause, done }).await.is_ok() {
            // An owner that ended without an answer has nothing left.
            drop(gone.await);
        }
    });
    join_all(gone).await;
}
