//! Taking a snapshot of a sandbox: of one that runs, which stands still for it, or of one that is paused, whose saved
//! machine is linked and whose disk is copied. The snapshot's row is the asker's; nothing of it lies in the sandbox's
//! directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hutch_api::{Error, ErrorKind};
use hutch_engine::snapshot::{Save, Then};
use hutch_units::SnapshotId;
use tokio::sync::oneshot;

use super::handle::Taken;
use super::task::{Next, Task};
use crate::lifecycle::{Event, State};
use crate::report::chain;
use crate::snapshots::files::{self, Disk};

impl Task {
    pub(super) async fn take(
        &mut self,
        snapshot: SnapshotId,
        is_named: bool,
        done: oneshot::Sender<Result<Taken, Error>>,
    ) -> Next {
        let directory = self.core.data.snapshot(snapshot);
        // Whatever is asked for meanwhile waits: files that were begun are finished before their asker removes them.
        let taken = if self.is_kept() { self.take_saved(directory).await } else { self.take_live(directory).await };
        if taken.is_ok() && is_named {
            self.row.parent = Some(snapshot);
            if let Err(error) = self.store(None).await {
                tracing::warn!(error = chain(&error), "the parent of the next snapshot is not stored yet");
            }
            self.publish();
        }
        // Who asked may have gone away, and removes the snapshot then.
        drop(done.send(taken));
        if self.is_kept() { Next::Hold } else { Next::Serve }
    }

    async fn take_live(&mut self, directory: PathBuf) -> Result<Taken, Error> {
        let Some(machine) = self.machine.clone() else {
            return Err(Error::new(ErrorKind::Unavailable, "the sandbox's machine does not answer; try again"));
        };
        let (engine, spec) = (Arc::clone(&self.core.engine), self.core.machine_spec(&self.row));
        let disk_copy = files::beside(&directory);
        let save = Save { directory: directory.clone(), then: Then::GoOn { disk_copy: disk_copy.clone() } };
        let manifest = engine.save(&spec, &machine, &save).await.map_err(|error| {
            tracing::error!(error = chain(&error), "a snapshot could not be taken");
            Error::new(ErrorKind::Internal, format!("no snapshot was taken: {}", super::pause::reason_of(&error)))
        })?;
        files::add_disk(disk_copy, directory).await.map_err(|error| Error::internal(&error))?;
        let stopped = manifest.saved.and_then(|saved| saved.stopped_us).map(Duration::from_micros);
        tracing::info!(milliseconds = stopped.map(|stopped| stopped.as_secs_f64() * 1000.0), "took a snapshot");
        Ok(Taken { template: manifest.template, stopped })
    }

    async fn take_saved(&mut self, directory: PathBuf) -> Result<Taken, Error> {
        let Some(number) = self.row.pause else {
            return Err(Error::new(ErrorKind::WrongState, "the sandbox has no saved machine; resume it first"));
        };
        // A sandbox in error stays what it is.
        let is_paused = self.row.state == State::Paused;
        if is_paused {
            self.commit(Event::ForkAsked, None).await;
        }
        let saved = self.core.data.pause(self.row.id, number);
        // A snapshot that was put in its place and never ran yet still has the disk with it.
        let brought = saved.join(hutch_engine::snapshot::file::DISK);
        let disk = if brought.exists() { brought } else { self.core.data.disk(self.row.id) };
        let derived = files::derive(saved, directory, Disk::CopyOf(disk)).await;
        if is_paused {
            self.commit(Event::ForkEnded, None).await;
        }
        derived.map_err(|error| Error::internal(&error))?;
        Ok(Taken { template: self.row.template.clone(), stopped: None })
    }
}
