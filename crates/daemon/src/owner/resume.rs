//! Coming back: a machine goes on where a saved one was.
//!
//! | step    | recorded before it as        | after a kill in its midst                                     |
//! |---------|------------------------------|---------------------------------------------------------------|
//! | disk    | `resuming`                   | repeated: putting a restored disk in its place is one rename  |
//! | machine | `resuming`                   | disk unwritten: ended and begun anew; written: adopted        |
//! | running | the row's machine record     | adopted                                                       |
//!
//! A guest writes to its disk as soon as it goes on, and what it has in memory no longer fits the disk then. So a
//! machine that ran, however shortly, is looked for before the saved one is taken a second time, and when there is no
//! machine and the disk was written, the sandbox boots from its disk: its processes are lost, its files are not.

use std::sync::Arc;
use std::time::Instant;

use hutch_api::{Error, ErrorKind};
use hutch_engine::artefact::ArtefactKind;
use hutch_engine::machine::host_boot_id;
use hutch_engine::snapshot::{Identity, SnapshotManifest};
use hutch_engine::{Machine, MachineRecord, Origin, StartError};
use hutch_units::Mebibytes;

use super::task::{Next, Task};
use crate::capacity::Supply;
use crate::lifecycle::{Event, State};
use crate::metrics::{Count, Timing};
use crate::report::chain;
use crate::snapshots::{files, unusable};
use crate::store::Desired;

/// Why there is no machine.
pub(super) enum Broken {
    /// Something else came up.
    Overtaken(Next),
    /// A step failed.
    Failed { reason: String },
}

impl From<Next> for Broken {
    fn from(next: Next) -> Self {
        Self::Overtaken(next)
    }
}

impl Task {
    pub(super) async fn resume(&mut self) -> Next {
        self.since = Instant::now();
        if self.place.is_none() {
            let memory = Mebibytes(self.row.spec.memory_mib);
            match self.core.capacity.admit(memory, Supply::measure(self.core.data.root())) {
                Ok(place) => self.place = Some(place),
                Err(no_room) => {
                    let error = Error::new(ErrorKind::Unavailable, no_room.to_string());
                    self.answer(&Err(error.with_retry_after(std::time::Duration::from_secs(5))));
                    return Next::Hold;
                }
            }
        }
        self.row.desired = Desired::Running;
        self.row.reason = None;
        self.commit(Event::ResumeAsked, None).await;
        self.answer(&Ok(()));
        self.bring_back().await
    }

    /// From `resuming` to `running`, or to `error`.
    pub(super) async fn bring_back(&mut self) -> Next {
        let (origin, note) = match self.origin().await {
            Ok(found) => found,
            Err(reason) => return self.did_not_come_back(reason).await,
        };
        match self.start_from(&origin).await {
            Ok(machine) => {
                self.machine = Some(Arc::new(machine));
                self.came_back(note).await;
                Next::Serve
            }
            Err(Broken::Overtaken(next)) => next,
            Err(Broken::Failed { reason }) => self.did_not_come_back(reason).await,
        }
    }

    /// The machine is there.
    pub(super) async fn came_back(&mut self, note: Option<String>) {
        if let Some(machine) = &self.machine {
            self.row.machine = serde_json::to_string(&machine.record).ok();
            self.row.template.clone_from(&machine.record.template);
        }
        let now = self.core.clock.now();
        self.row.last_resumed_at = Some(now);
        self.row.running_at = self.row.running_at.or(Some(now));
        (self.row.pause, self.row.fresh, self.row.disk_stamp, self.row.step) = (None, false, None, None);
        self.commit(Event::Resumed, note).await;
        self.core.metrics.time(Timing::Resume, self.since.elapsed());
        tracing::info!(milliseconds = self.since.elapsed().as_secs_f64() * 1000.0, "the sandbox is back");
        // The machine has its files open, and a later pause makes new ones.
        if let Err(error) = self.forget_saved(None).await {
            tracing::warn!(error = chain(&error), "the saved machine of a resumed sandbox cannot be removed yet");
        }
    }

    /// Back to where it can be tried again.
    pub(super) async fn did_not_come_back(&mut self, reason: String) -> Next {
        if let Some(next) = self.end_machine().await {
            return next;
        }
        tracing::warn!(reason, "the sandbox did not come back");
        self.place = None;
        self.row.reason = Some(reason.clone());
        self.commit(Event::ResumeFailed, Some(reason)).await;
        Next::Hold
    }

    /// What to do about a return that an earlier run of the daemon had begun.
    pub(super) async fn finish_resume(&mut self) -> Next {
        self.since = Instant::now();
        if self.row.pause.is_some() && self.fits().await {
            // Nothing that the machine did is on its disk, so nobody misses it.
            return match self.end_machine().await {
                Some(next) => next,
                None => Next::Resume,
            };
        }
        let record = match self.record() {
            Some(record) => Some(record),
            None => self.find_unrecorded().await,
        };
        if let Some(record) = record {
            self.row.machine = serde_json::to_string(&record).ok();
            let (core, spec) = (Arc::clone(&self.core), self.core.machine_spec(&self.row));
            match self.unless_commanded(async { core.engine.adopt(&spec, &record).await }).await {
                Ok(Ok(machine)) => {
                    core.metrics.count(Count::Adopted);
                    self.machine = Some(Arc::new(machine));
                    self.came_back(Some("the service stopped meanwhile".to_owned())).await;
                    return Next::Serve;
                }
                Ok(Err(error)) => tracing::warn!(error = chain(&error), "a machine that was coming back is not found"),
                Err(next) => return next,
            }
        }
        match self.end_machine().await {
            Some(next) => next,
            None => Next::Resume,
        }
    }

    /// Whether the saved machine fits the disk: nothing was written to it since, or it lies beside the machine.
    async fn fits(&self) -> bool {
        let Some(number) = self.row.pause else { return false };
        let restored = self.core.data.pause(self.row.id, number).join(hutch_engine::snapshot::file::DISK);
        let disk = if restored.exists() { restored } else { self.core.data.disk(self.row.id) };
        files::stamp(disk).await.is_ok_and(|stamp| Some(stamp) == self.row.disk_stamp)
    }

    /// What the machine begins as, with a note when that is not what was saved.
    async fn origin(&mut self) -> Result<(Origin, Option<String>), String> {
        let Some(number) = self.row.pause else {
            return Ok((Origin::Boot, Some("there is no saved machine: booted from the disk".to_owned())));
        };
        let directory = self.core.data.pause(self.row.id, number);
        let fits = self.fits().await;
        if !directory.exists() {
            // The row is older than what happened: the host lost power.
            let note = "the saved machine is gone: booted from the disk";
            tracing::error!(note, "the processes of a paused sandbox are lost");
            return Ok((Origin::Boot, Some(note.to_owned())));
        }
        files::move_disk(directory.clone(), self.core.data.disk(self.row.id)).await.map_err(|error| {
            tracing::error!(error = chain(&error), "the disk of a snapshot cannot be put in its place");
            "the disk could not be put in its place".to_owned()
        })?;
        if !fits {
            let note = "the disk was written after the machine was saved: booted from the disk";
            tracing::error!(note, "the processes of a paused sandbox are lost");
            return Ok((Origin::Boot, Some(note.to_owned())));
        }
        self.core.engine.verify(&directory).await.map_err(|error| {
            tracing::error!(error = chain(&error), "a saved machine cannot be used");
            unusable(&error)
        })?;
        let template = self.row.template.as_deref().map(|key| self.core.data.template(key));
        let identity = if self.row.fresh { Identity::New } else { Identity::Same };
        Ok((Origin::Saved { directory, template, identity }, None))
    }

    /// Starts the machine; a wish to destroy the sandbox that comes meanwhile gives that up.
    pub(super) async fn start_from(&mut self, origin: &Origin) -> Result<Machine, Broken> {
        let (engine, spec) = (Arc::clone(&self.core.engine), self.core.machine_spec(&self.row));
        let failed = |error: StartError| {
            tracing::error!(error = chain(&error), "a machine did not come back");
            Broken::Failed { reason: reason_of(&error) }
        };
        let prepared = self.unless_overtaken(engine.prepare(&spec, origin)).await?.map_err(failed)?;
        self.row.machine = serde_json::to_string(&prepared.record).ok();
        // The record is on its way to the store while the guest is told who it is: nobody is told before both are done.
        let row = self.row.clone();
        let core = Arc::clone(&self.core);
        let recorded = core.store.note("record a machine", move |db| crate::store::query::apply(db, &row, None));
        let activated = async { tokio::join!(engine.activate(prepared, &spec), recorded) };
        let (machine, recorded) = self.unless_overtaken(activated).await?;
        if let Err(error) = recorded {
            // Stored again with the state that comes next.
            tracing::warn!(error = chain(&error), "the record of a machine is not stored yet");
        }
        machine.map_err(failed)
    }

    /// Completes with the work, or with what is to be done instead of it; the end of the daemon waits for it.
    pub(super) async fn unless_overtaken<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Next> {
        let mut work = std::pin::pin!(work);
        loop {
            let command = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                command = self.commands.recv() => command,
            };
            if let Some(next) = self.obey(command).await {
                return Err(next);
            }
        }
    }

    /// The record of a machine that came back and was not recorded any more, put together from what is on the host.
    async fn find_unrecorded(&self) -> Option<MachineRecord> {
        let id = self.row.id;
        let artefacts = self.core.engine.artefacts().await.ok()?;
        let own = || artefacts.iter().filter(|artefact| artefact.sandbox == Some(id));
        // The kernel's process is the oldest: its first act is to start the others.
        let (start_time, pid) = own()
            .filter_map(|artefact| match artefact.kind {
                ArtefactKind::Process { pid, start_time } => Some((start_time, pid)),
                _ => None,
            })
            .min()?;
        let cgroups = own().filter_map(|artefact| match &artefact.kind {
            ArtefactKind::Cgroup { path } => Some(path.clone()),
            _ => None,
        });
        let manifest = SnapshotManifest::read(&self.core.data.pause(id, self.row.pause?)).ok()?;
        Some(MachineRecord {
            format: MachineRecord::FORMAT.to_owned(),
            version: MachineRecord::VERSION,
            engine: self.core.engine.kind(),
            pid,
            start_time,
            boot_id: host_boot_id().ok()?,
            cgroups: cgroups.collect(),
            template: manifest.base_key().map(str::to_owned),
            kernel_digest: manifest.kernel_digest,
            boot_image_digest: manifest.boot_image_digest,
        })
    }
}

/// What the owner of the sandbox is told of a failed start; the log is told all.
fn reason_of(error: &StartError) -> String {
    match error {
        StartError::Ended { .. } => "the guest's kernel ended while it came back".to_owned(),
        StartError::Silent { deadline, .. } => format!("the guest did not answer within {} s", deadline.as_secs()),
        StartError::Agent { .. } => "the guest's agent could not be configured".to_owned(),
        StartError::Snapshot { source, .. } => unusable(source),
        _ => "the machine could not be started; the service's log has the details".to_owned(),
    }
}

impl Task {
    /// Whether it is one of the states in which nothing runs.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.row.state, State::Paused | State::Error)
    }
}
