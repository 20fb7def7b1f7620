//! Going back: a snapshot takes the place of the sandbox's own memory and disk.
//!
//! | step    | recorded before it as                    | after a kill in its midst                 |
//! |---------|------------------------------------------|-------------------------------------------|
//! | copy    | `origin`, which keeps the snapshot there | the sandbox is what it was                |
//! | machine | `resuming`, with the copy's number       | ended, then as after a kill of a resume   |
//!
//! Until the copy is whole the sandbox is what it was; from the moment that it is recorded the sandbox is what it was
//! when the snapshot was taken.

use std::time::Instant;

use hutch_api::{Error, ErrorKind};
use hutch_engine::snapshot::file;
use hutch_units::Mebibytes;

use super::handle::Answer;
use super::task::{Next, Task};
use crate::capacity::Supply;
use crate::lifecycle::Event;
use crate::report::chain;
use crate::snapshots::files::{self, Disk, FileError};
use crate::store::{Desired, SnapshotRow, SnapshotState, query};

impl Task {
    pub(super) async fn restore(&mut self, snapshot: SnapshotRow, done: Answer) -> Next {
        let before = if self.is_kept() { Next::Hold } else { Next::Serve };
        self.since = Instant::now();
        if let Err(error) = self.lay_beside(&snapshot).await {
            self.row.origin = None;
            if let Err(error) = self.store(None).await {
                tracing::warn!(error = chain(&error), "the end of a restore is not stored yet");
            }
            // Who asked may have gone away.
            drop(done.send(Err(error)));
            return before;
        }
        self.row.desired = Desired::Running;
        self.row.reason = None;
        self.row.origin = None;
        self.row.template.clone_from(&snapshot.template);
        (self.row.snapshot, self.row.parent) = (Some(snapshot.id), Some(snapshot.id));
        self.row.fresh = snapshot.sandbox != self.row.id;
        tracing::info!(snapshot = %snapshot.id, "going back");
        self.commit(Event::RestoreAsked, Some(snapshot.id.to_string())).await;
        self.askers.push(done);
        self.answer(&Ok(()));
        if let Some(next) = self.end_machine().await {
            return next;
        }
        self.bring_back().await
    }

    /// Makes a saved machine of the sandbox's own out of the snapshot, beside the one that there may be.
    async fn lay_beside(&mut self, snapshot: &SnapshotRow) -> Result<(), Error> {
        if self.place.is_none() {
            let memory = Mebibytes(self.row.spec.memory_mib);
            let place = self.core.capacity.admit(memory, Supply::measure(self.core.data.root()));
            let place = place.map_err(|no_room| Error::new(ErrorKind::Unavailable, no_room.to_string()))?;
            if !self.is_kept() {
                return Err(Error::new(ErrorKind::Unavailable, "the sandbox is not ready; try again"));
            }
            self.place = Some(place);
        }
        self.hold_snapshot(snapshot).await?;
        let number = if self.row.pause == Some(1) { 2 } else { 1 };
        let copy = self.core.data.pause(self.row.id, number);
        let original = self.core.data.snapshot(snapshot.id);
        let copied = async {
            files::derive(original.clone(), copy.clone(), Disk::CopyOf(original.join(file::DISK))).await?;
            files::stamp(copy.join(file::DISK)).await
        };
        let stamp = copied.await.map_err(|error: FileError| {
            tracing::error!(error = chain(&error), "a snapshot cannot be copied");
            Error::internal(&error)
        });
        match stamp {
            Ok(stamp) => {
                (self.row.pause, self.row.disk_stamp) = (Some(number), Some(stamp));
                Ok(())
            }
            Err(error) => {
                if self.is_kept() {
                    self.place = None;
                }
                Err(error)
            }
        }
    }

    /// Keeps the snapshot from being removed, if it is still there.
    async fn hold_snapshot(&mut self, snapshot: &SnapshotRow) -> Result<(), Error> {
        self.row.origin = Some(snapshot.id);
        let (row, id) = (self.row.clone(), snapshot.id);
        let held = self.core.store.write("hold a snapshot", move |db| {
            let found = query::find_snapshot(db, id)?;
            let is_ready = found.is_some_and(|found| found.state == SnapshotState::Ready);
            if is_ready {
                query::apply(db, &row, None)?;
            }
            Ok(is_ready)
        });
        match held.await.map_err(|error| Error::internal(&error))? {
            true => Ok(()),
            false => Err(Error::not_found("snapshot", &snapshot.id.to_string())),
        }
    }
}
