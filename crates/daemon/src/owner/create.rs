//! Making a sandbox: from a machine that waits, else as a clone of a template, else by a boot. Whichever does not work
//! is undone, and the next one is tried.
//!
//! | step      | recorded before it as       | undone by                          |
//! |-----------|-----------------------------|------------------------------------|
//! | `disk`    | the row, with id and slot   | removing the sandbox's directory   |
//! | `machine` | the same                    | `Engine::destroy` with no record   |
//! | running   | the row's machine record    | `Engine::destroy` with the record  |

use std::sync::Arc;

use hutch_engine::snapshot::file;
use hutch_engine::{Identity, Machine, Origin, Prepared, StartError};
use hutch_units::Mebibytes;

use super::task::{Next, Task};
use crate::lifecycle::Event;
use crate::metrics::{Count, Timing};
use crate::report::chain;
use crate::snapshots::files;

/// Where the machine of a sandbox comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// It waited.
    Pool,
    /// It is a clone of a template.
    Clone,
    /// It booted.
    Boot,
}

/// Whose fault it is that there is no machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// The template's, and it will not get better.
    Template,
    /// The template's or the host's.
    Unclear,
    /// The host's.
    Host,
}

/// Why there is no machine.
enum Broken {
    /// It was asked to go while it was made.
    Overtaken(Next),
    /// A step failed.
    Failed {
        reason: String,
        /// Whether it is the template's fault.
        blame: Blame,
    },
}

impl From<Next> for Broken {
    fn from(next: Next) -> Self {
        Self::Overtaken(next)
    }
}

impl Task {
    /// Makes the sandbox and says what is next: to serve it, or to undo what was made.
    pub(super) async fn create(&mut self) -> Next {
        match self.make().await {
            Ok((machine, source)) => {
                self.core.metrics.count(source.count());
                self.started(machine, Some(source.as_str())).await
            }
            Err(Broken::Overtaken(next)) => next,
            Err(Broken::Failed { reason, .. }) => Next::Fail { reason },
        }
    }

    /// The machine of a new sandbox is there; `source` is where it came from.
    pub(super) async fn started(&mut self, machine: Machine, source: Option<&'static str>) -> Next {
        self.turn = None;
        self.row.machine = serde_json::to_string(&machine.record).ok();
        self.row.template.clone_from(&machine.record.template);
        self.row.running_at = Some(self.core.clock.now());
        self.row.spawn_ms = Some(self.since.elapsed().as_secs_f64() * 1000.0);
        self.row.step = None;
        self.machine = Some(Arc::new(machine));
        self.core.metrics.count(Count::Created);
        self.core.metrics.time(Timing::Create, self.since.elapsed());
        // Counted first: who has the answer finds it counted.
        self.commit(Event::Started, source.map(str::to_owned)).await;
        tracing::info!(name = %self.row.name, milliseconds = self.row.spawn_ms, source, "the sandbox runs");
        Next::Serve
    }

    async fn make(&mut self) -> Result<(Machine, Source), Broken> {
        if let Some(prepared) = self.core.pool.claim(self.row.id) {
            match self.take_over(prepared).await {
                Ok(machine) => return Ok((machine, Source::Pool)),
                Err(broken) => self.try_otherwise(broken, Source::Pool).await?,
            }
        }
        if let Some(key) = self.row.template.clone() {
            match self.clone_template(&key).await {
                Ok(machine) => {
                    self.core.templates.praise(&key);
                    return Ok((machine, Source::Clone));
                }
                Err(broken) => {
                    match broken {
                        Broken::Failed { blame: Blame::Template, .. } => self.core.templates.reject(&key),
                        Broken::Failed { blame: Blame::Unclear, .. } => self.core.templates.blame(&key),
                        _ => {}
                    }
                    self.try_otherwise(broken, Source::Clone).await?;
                }
            }
            self.row.template = None;
        }
        self.boot().await.map(|machine| (machine, Source::Boot))
    }

    /// Takes back what did not work, so that another way can be tried.
    async fn try_otherwise(&mut self, broken: Broken, source: Source) -> Result<(), Broken> {
        let reason = match broken {
            Broken::Failed { reason, .. } => reason,
            overtaken @ Broken::Overtaken(_) => return Err(overtaken),
        };
        tracing::warn!(reason, source = source.as_str(), "a machine cannot be had this way; trying another");
        if let Some(next) = self.end_machine().await {
            return Err(Broken::Overtaken(next));
        }
        let directory = self.core.data.sandbox(self.row.id);
        files::remove(directory).await.map_err(|error| {
            tracing::error!(error = chain(&error), "what was begun cannot be removed");
            Broken::Failed { reason: "what was begun could not be removed".to_owned(), blame: Blame::Host }
        })
    }

    /// The machine that waited is told who it is.
    async fn take_over(&mut self, prepared: Prepared) -> Result<Machine, Broken> {
        let (engine, spec) = (Arc::clone(&self.core.engine), self.core.machine_spec(&self.row));
        self.unless_overtaken(engine.activate(prepared, &spec)).await?.map_err(|error| failure(&error))
    }

    async fn clone_template(&mut self, key: &str) -> Result<Machine, Broken> {
        let data = &self.core.data;
        let template = data.template(key);
        let (directory, disk) = (data.sandbox(self.row.id), data.disk(self.row.id));
        let copied = files::make_home(directory, template.join(file::DISK), disk).await;
        copied.map_err(|error| {
            tracing::error!(error = chain(&error), "the disk of a template cannot be copied");
            Broken::Failed { reason: "the disk could not be made".to_owned(), blame: Blame::Host }
        })?;
        self.start(Origin::Saved { directory: template, template: None, identity: Identity::New }).await
    }

    async fn boot(&mut self) -> Result<Machine, Broken> {
        let source = self.core.images.source();
        let (directory, disk) = (self.core.data.sandbox(self.row.id), self.core.data.disk(self.row.id));
        let size = Mebibytes(self.row.spec.disk_mib);
        let made = tokio::task::spawn_blocking(move || {
            crate::data_directory::make_private(&directory).map_err(|error| chain(&error))?;
            source.make_disk(&disk, size).map_err(|error| chain(&error))
        });
        let made = match made.await {
            Ok(made) => made,
            Err(error) => Err(chain(&error)),
        };
        made.map_err(|detail| {
            tracing::error!(detail, "the disk of a sandbox cannot be made");
            Broken::Failed { reason: "the disk could not be made".to_owned(), blame: Blame::Host }
        })?;
        self.start(Origin::Boot).await
    }

    /// Starts the machine; a wish to destroy the sandbox that comes meanwhile gives that up.
    async fn start(&mut self, origin: Origin) -> Result<Machine, Broken> {
        let (engine, spec) = (Arc::clone(&self.core.engine), self.core.machine_spec(&self.row));
        self.unless_overtaken(engine.start(&spec, &origin)).await?.map_err(|error| failure(&error))
    }
}

impl Source {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Clone => "clone",
            Self::Boot => "boot",
        }
    }

    fn count(self) -> Count {
        match self {
            Self::Pool => Count::FromPool,
            Self::Clone => Count::FromClone,
            Self::Boot => Count::FromBoot,
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
    let blame = match error {
        StartError::Snapshot { .. } => Blame::Template,
        StartError::Ended { .. } | StartError::Silent { .. } | StartError::Agent { .. } => Blame::Unclear,
        _ => Blame::Host,
    };
    Broken::Failed { reason, blame }
}
