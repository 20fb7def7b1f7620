//! Making a sandbox.
//!
//! | step      | recorded before it as       | undone by                          |
//! |-----------|-----------------------------|------------------------------------|
//! | `disk`    | the row, with id and slot   | removing the sandbox's directory   |
//! | `machine` | `step = machine`            | `Engine::destroy` with no record   |
//! | running   | the row's machine record    | `Engine::destroy` with the record  |

use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use hutch_engine::{Machine, StartError};
use hutch_units::Mebibytes;

use super::task::{Next, Task};
use crate::lifecycle::Event;
use crate::metrics::{Count, Timing};
use crate::report::chain;

/// Why there is no machine.
enum Broken {
    /// It was asked to go while it was made.
    Overtaken(Next),
    /// A step failed.
    Failed { reason: String },
}

impl Task {
    /// Makes the sandbox and says what is next: to serve it, or to undo what was made.
    pub(super) async fn create(&mut self) -> Next {
        match self.make().await {
            Ok(machine) => {
                self.turn = None;
                self.row.machine = serde_json::to_string(&machine.record).ok();
                self.row.running_at = Some(self.core.clock.now());
                self.row.spawn_ms = Some(self.since.elapsed().as_secs_f64() * 1000.0);
                self.row.step = None;
                self.machine = Some(Arc::new(machine));
                self.commit(Event::Started, None).await;
                self.core.metrics.count(Count::Created);
                self.core.metrics.time(Timing::Create, self.since.elapsed());
                tracing::info!(name = %self.row.name, milliseconds = self.row.spawn_ms, "the sandbox runs");
                Next::Serve
            }
            Err(Broken::Overtaken(next)) => next,
            Err(Broken::Failed { reason }) => Next::Fail { reason },
        }
    }

    async fn make(&mut self) -> Result<Machine, Broken> {
        self.make_disk().await?;
        self.row.step = Some("machine".to_owned());
        self.store(None).await.map_err(|error| {
            tracing::error!(error = chain(&error), "a step of a create cannot be stored");
            Broken::Failed { reason: "the service could not store a step of making the sandbox".to_owned() }
        })?;
        self.start().await
    }

    /// Makes the sandbox's directory and the disk in it.
    async fn make_disk(&self) -> Result<(), Broken> {
        let source = self.core.images.source();
        let (directory, disk) = (self.core.data.sandbox(self.row.id), self.core.data.disk(self.row.id));
        let size = Mebibytes(self.row.spec.disk_mib);
        let made = tokio::task::spawn_blocking(move || {
            let created = std::fs::DirBuilder::new().mode(0o700).create(&directory);
            created.map_err(|error| format!("{} cannot be made: {error}", directory.display()))?;
            source.make_disk(&disk, size).map_err(|error| chain(&error))
        });
        match made.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(detail)) => Err(detail),
            Err(error) => Err(chain(&error)),
        }
        .map_err(|detail| {
            tracing::error!(detail, "the disk of a sandbox cannot be made");
            Broken::Failed { reason: "the disk could not be made".to_owned() }
        })
    }

    /// Starts the machine; a wish to destroy the sandbox that comes meanwhile gives that up.
    async fn start(&mut self) -> Result<Machine, Broken> {
        let (engine, spec) = (Arc::clone(&self.core.engine), self.core.machine_spec(&self.row));
        let origin = hutch_engine::Origin::Boot;
        let mut start = engine.start(&spec, &origin);
        loop {
            let command = tokio::select! {
                biased;
                result = &mut start => return result.map_err(|error| failure(&error)),
                command = self.commands.recv() => command,
            };
            if let Some(next) = self.obey(command).await {
                return Err(Broken::Overtaken(next));
            }
        }
    }
}

/// What the owner of the sandbox is told of a failed start; the log is told all.
fn failure(error: &StartError) -> Broken {
    tracing::error!(error = chain(error), "a machine did not start");
    let reason = match error {
        StartError::Ended { .. } => "the guest's kernel ended while it booted".to_owned(),
        StartError::Silent { deadline, .. } => {
            format!("the guest did not answer within {} s", deadline.as_secs())
        }
        StartError::Agent { .. } => "the guest's agent could not be configured".to_owned(),
        _ => "the machine could not be started; the service's log has the details".to_owned(),
    };
    Broken::Failed { reason }
}
