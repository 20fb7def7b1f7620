//! Snapshots: taken, looked at, deleted, gone back to.

use std::sync::Arc;
use std::time::Instant;

use hutch_api::{
    Caller, CreateSnapshot, DeletedSnapshot, Error, ErrorKind, Page, PageRequest, SandboxReference, SandboxView,
    SnapshotFilter, SnapshotReference, SnapshotView,
};
use hutch_units::{SnapshotId, SnapshotName};

use super::pause::{answer, ask, living, not_back, settled};
use crate::core::Core;
use crate::lifecycle::State;
use crate::metrics::Timing;
use crate::owner::{Command, Handle, Taken};
use crate::snapshots::{self, files};
use crate::store::{SandboxRow, SnapshotKind, SnapshotRow, SnapshotState, SnapshotsWanted, query};
use crate::view;

pub(super) async fn create(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    request: CreateSnapshot,
) -> Result<SnapshotView, Error> {
    super::create::refuse_unless_ready(core).await?;
    let name = request.name.as_deref().filter(|name| !name.is_empty());
    let name = name.map(|name| SnapshotName::parse(name).map_err(|error| Error::field("name", error.to_string())));
    let name = name.transpose()?;
    let handle = living(core, caller, reference, "saved").await?;
    let row = handle.snapshot().row;
    let new = SnapshotRow {
        name,
        description: request.description.filter(|description| !description.is_empty()),
        labels: request.labels,
        ..draft(core, &row, SnapshotKind::Named)
    };
    // In a task of its own: a caller that goes away now must not leave a snapshot half made.
    let core = Arc::clone(core);
    let taking = tokio::spawn(async move { take(&core, &handle, new).await.map(|taken| view::snapshot(&taken.0)) });
    taking.await.map_err(|error| Error::internal(&error))?
}

/// The row of a snapshot that is about to be taken of a sandbox.
pub(super) fn draft(core: &Core, sandbox: &SandboxRow, kind: SnapshotKind) -> SnapshotRow {
    SnapshotRow {
        id: SnapshotId::generate(),
        account: sandbox.account.clone(),
        kind,
        state: SnapshotState::Creating,
        name: None,
        description: None,
        labels: std::collections::BTreeMap::new(),
        sandbox: sandbox.id,
        parent: sandbox.parent,
        template: sandbox.template.clone(),
        spec: sandbox.spec.clone(),
        bytes: 0,
        created_at: core.clock.now(),
    }
}

/// Records a snapshot, has it taken, and notes that it is whole. When that does not work nothing is left of it.
async fn take(core: &Arc<Core>, handle: &Handle, new: SnapshotRow) -> Result<(SnapshotRow, Taken), Error> {
    let recorded = new.clone();
    let recorded = core.store.write("record a snapshot", move |db| query::insert_snapshot(db, &recorded)).await;
    if !recorded.map_err(|error| Error::internal(&error))? {
        let name = new.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = format!("a snapshot is named {name:?} already; delete it, or choose another name");
        return Err(Error::new(ErrorKind::NameTaken, message.clone()).with_field("name", message));
    }
    fill(core, handle, new).await
}

/// Has a snapshot taken whose row is in the store.
pub(super) async fn fill(core: &Arc<Core>, handle: &Handle, new: SnapshotRow) -> Result<(SnapshotRow, Taken), Error> {
    let since = Instant::now();
    let id = new.id;
    let filled = async {
        prepare(core).await?;
        let is_named = new.kind == SnapshotKind::Named;
        let taken = ask(core, handle, |done| Command::Take { snapshot: id, is_named, done }).await?;
        let bytes = files::usage(core.data.snapshot(id)).await.map_err(|error| Error::internal(&error))?;
        let row = SnapshotRow { state: SnapshotState::Ready, template: taken.template.clone(), bytes, ..new };
        let whole = row.clone();
        let stored = core.store.write("complete a snapshot", move |db| query::complete_snapshot(db, &whole)).await;
        stored.map_err(|error| Error::internal(&error))?;
        Ok((row, taken))
    };
    match filled.await {
        Ok(done) => {
            core.metrics.time(Timing::Snapshot, since.elapsed());
            Ok(done)
        }
        Err(error) => {
            // In the background: it waits for those who were to begin from it.
            let core = Arc::clone(core);
            tokio::spawn(async move { snapshots::remove(&core, id).await });
            Err(error)
        }
    }
}

/// Makes the directory that snapshots lie in, which is as good as no work.
async fn prepare(core: &Core) -> Result<(), Error> {
    let directory = core.data.snapshots();
    match files::make_directory(directory.clone()).await {
        Err(error) if !directory.is_dir() => Err(Error::internal(&error)),
        _ => Ok(()),
    }
}

pub(super) async fn list(
    core: &Arc<Core>,
    caller: &Caller,
    filter: SnapshotFilter,
    page: PageRequest,
) -> Result<Page<SnapshotView>, Error> {
    let sandbox = match filter.sandbox {
        None => None,
        // Its snapshots outlive it: an id needs no row.
        Some(SandboxReference::Id(id)) => Some(id.to_string()),
        Some(name) => Some(core.find(caller, &name).await?.row().id.to_string()),
    };
    let wanted = SnapshotsWanted {
        account: caller.account.clone(),
        sandbox,
        name: filter.name.map(|name| name.as_str().to_owned()),
    };
    let limit = u32::try_from(page.limit).unwrap_or(u32::MAX);
    let offset = page.offset;
    let listed = core.store.read("list snapshots", move |db| query::list_snapshots(db, &wanted, limit, offset)).await;
    let (rows, total) = listed.map_err(|error| Error::internal(&error))?;
    Ok(Page::new(rows.iter().map(view::snapshot).collect(), total, page))
}

pub(super) async fn get(core: &Core, caller: &Caller, reference: &SnapshotReference) -> Result<SnapshotView, Error> {
    Ok(view::snapshot(&snapshots::resolve(core, caller, reference).await?))
}

pub(super) async fn delete(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SnapshotReference,
) -> Result<DeletedSnapshot, Error> {
    let row = snapshots::resolve(core, caller, reference).await?;
    if row.state == SnapshotState::Creating {
        let message = "the snapshot is being taken; delete it when it is ready";
        return Err(Error::new(ErrorKind::WrongState, message));
    }
    let (core, id) = (Arc::clone(core), row.id);
    let removing = tokio::spawn(async move { snapshots::remove(&core, id).await });
    removing.await.map_err(|error| Error::internal(&error))?;
    Ok(DeletedSnapshot { id, deleted: true })
}

pub(super) async fn restore(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    snapshot: &SnapshotReference,
) -> Result<SandboxView, Error> {
    super::create::refuse_unless_ready(core).await?;
    let handle = living(core, caller, reference, "restored").await?;
    let snapshot = snapshots::resolve(core, caller, snapshot).await?;
    snapshots::verify(core, &snapshot).await?;
    let row = handle.snapshot().row;
    if !is_related(core, &row, &snapshot).await? {
        let message = format!(
            "the snapshot {} is of another sandbox ({}); create a sandbox from it instead",
            snapshot.id, snapshot.sandbox
        );
        return Err(Error::field("snapshot", message));
    }
    let snapshot = Box::new(snapshot);
    let row = ask(core, &handle, |done| Command::Restore { snapshot, done }).await?;
    let row = settled(&handle, row, State::Resuming).await;
    match row.state {
        State::Error => Err(not_back(&row)),
        _ => answer(core, &row),
    }
}

/// Whether a snapshot was taken of this sandbox, of one that it was forked from, or is the one it was created from.
async fn is_related(core: &Core, row: &SandboxRow, snapshot: &SnapshotRow) -> Result<bool, Error> {
    if row.snapshot == Some(snapshot.id) || row.id == snapshot.sandbox {
        return Ok(true);
    }
    let mut ancestor = row.forked_from;
    while let Some(id) = ancestor {
        if id == snapshot.sandbox {
            return Ok(true);
        }
        let found = core.store.read("look up an ancestor", move |db| query::find(db, &id.to_string())).await;
        ancestor = found.map_err(|error| Error::internal(&error))?.and_then(|row| row.forked_from);
    }
    Ok(false)
}
