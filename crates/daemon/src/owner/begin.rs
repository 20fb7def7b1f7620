//! Making a sandbox from a snapshot: a copy of its disk, and a machine that goes on where the snapshot's was, as
//! somebody new. `origin` in the row keeps the snapshot from being removed meanwhile.
//!
//! | step      | recorded before it as       | undone by                          |
//! |-----------|-----------------------------|------------------------------------|
//! | `disk`    | the row, with id and slot   | removing the sandbox's directory   |
//! | `machine` | the same                    | `Engine::destroy`                  |
//! | running   | the row's machine record    | `Engine::destroy` with the record  |

use std::sync::Arc;

use hutch_engine::snapshot::{Identity, file};
use hutch_engine::{Machine, Origin};
use hutch_units::SnapshotId;

use super::resume::Broken;
use super::task::{Next, Task};
use crate::lifecycle::{Event, State};
use crate::report::chain;
use crate::snapshots::files::{self, Disk, FileError};
use crate::store::{Desired, SnapshotRow, query};

/// The number of the directory with a copy's saved machine.
const FIRST: u32 = 1;

impl Task {
    pub(super) async fn begin_from_snapshot(&mut self) -> Next {
        let Some(origin) = self.row.origin else {
            return Next::Fail { reason: "the snapshot to begin from is not recorded".to_owned() };
        };
        match self.look(origin).await {
            Ok(Some(snapshot)) => self.row.template = snapshot.template,
            // It was taken down before this became its owner.
            Ok(None) => return Next::End,
            Err(reason) => return Next::Fail { reason },
        }
        if self.turn.is_none() {
            let creates = Arc::clone(&self.core.creates);
            match self.unless_commanded(creates.acquire_owned()).await {
                Ok(turn) => self.turn = turn.ok(),
                Err(next) => return next,
            }
        }
        if self.row.desired == Desired::Paused {
            return self.keep(origin).await;
        }
        match self.make_copy(origin).await {
            Ok(machine) => {
                self.row.origin = None;
                self.started(machine, None).await
            }
            Err(Broken::Overtaken(next)) => next,
            Err(Broken::Failed { reason }) => Next::Fail { reason },
        }
    }

    /// The snapshot, when this sandbox is still to be made.
    async fn look(&self, origin: SnapshotId) -> Result<Option<SnapshotRow>, String> {
        let id = self.row.id.to_string();
        let looked = self.core.store.read("look what a sandbox begins from", move |db| {
            let row = query::find(db, &id)?;
            Ok((row.is_some_and(|row| row.state == State::Creating), query::find_snapshot(db, origin)?))
        });
        match looked.await {
            Ok((true, Some(snapshot))) => Ok(Some(snapshot)),
            Ok((true, None)) => Err("the snapshot to begin from is gone".to_owned()),
            Ok((false, _)) => Ok(None),
            Err(error) => {
                tracing::error!(error = chain(&error), "the snapshot to begin from cannot be looked up");
                Err("the snapshot to begin from cannot be looked up".to_owned())
            }
        }
    }

    async fn make_copy(&mut self, origin: SnapshotId) -> Result<Machine, Broken> {
        let data = &self.core.data;
        let snapshot = data.snapshot(origin);
        let copied = async {
            files::make_directory(data.sandbox(self.row.id)).await?;
            files::copy(snapshot.join(file::DISK), data.disk(self.row.id)).await
        };
        copied.await.map_err(|error| Broken::Failed { reason: disk_reason(&error) })?;
        let template = self.row.template.as_deref().map(|key| data.template(key));
        self.start_from(&Origin::Saved { directory: snapshot, template, identity: Identity::New }).await
    }

    /// A copy that does not run yet: its saved machine is the snapshot's.
    async fn keep(&mut self, origin: SnapshotId) -> Next {
        let data = &self.core.data;
        let (directory, disk, snapshot) = (data.sandbox(self.row.id), data.disk(self.row.id), data.snapshot(origin));
        let saved = data.pause(self.row.id, FIRST);
        let kept = async {
            files::make_directory(directory).await?;
            files::copy(snapshot.join(file::DISK), disk.clone()).await?;
            files::derive(snapshot, saved, Disk::Elsewhere).await?;
            files::stamp(disk).await
        };
        match kept.await {
            Ok(stamp) => self.row.disk_stamp = Some(stamp),
            Err(error) => return Next::Fail { reason: disk_reason(&error) },
        }
        (self.place, self.turn) = (None, None);
        (self.row.pause, self.row.fresh) = (Some(FIRST), true);
        self.row.paused_at = Some(self.core.clock.now());
        (self.row.step, self.row.origin) = (None, None);
        self.commit(Event::Paused, None).await;
        tracing::info!(name = %self.row.name, "the sandbox is there, paused");
        Next::Hold
    }
}

fn disk_reason(error: &FileError) -> String {
    tracing::error!(error = chain(error), "a copy of a snapshot cannot be made");
    "the snapshot could not be copied".to_owned()
}
