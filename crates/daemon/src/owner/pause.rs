//! Pausing: the machine is written out and ends.
//!
//! | step    | recorded before it as   | after a kill in its midst                                    |
//! |---------|-------------------------|--------------------------------------------------------------|
//! | save    | `pausing`               | the machine lives: begun anew; it has ended: `finish_save`   |
//! | removal | `pausing`               | repeated: what is saved is whole                             |
//! | paused  | the number of the files | nothing to do                                                |
//!
//! The saved machine and the disk belong together: what the guest had not written to its disk yet is in the saved
//! memory. The disk's time of last writing is noted with the pause, and memory is never put beside a disk that was
//! written since.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hutch_engine::AdoptError;
use hutch_engine::snapshot::{Save, SaveError, Then};

use super::task::{Next, Task};
use crate::lifecycle::{Event, State};
use crate::metrics::{Count, Timing};
use crate::report::chain;
use crate::snapshots::files;
use crate::store::Desired;

/// The cause of a pause that needs no reason.
pub(crate) const ASKED: &str = "asked by its owner";
/// The number of the directory that a running machine is saved to: none of its saved ones is kept while it runs.
const FIRST: u32 = 1;

impl Task {
    pub(super) async fn pause(&mut self, cause: Cow<'static, str>) -> Next {
        let Some(machine) = self.machine.clone() else { return Next::Adopt };
        self.since = Instant::now();
        self.row.desired = Desired::Paused;
        self.row.reason = (cause != ASKED).then(|| cause.to_string());
        tracing::info!(%cause, "pausing");
        self.commit(Event::PauseAsked, Some(cause.into_owned())).await;
        self.answer(&Ok(()));
        let directory = self.core.data.pause(self.row.id, FIRST);
        // Only a daemon that was killed as soon as the machine had come back leaves one.
        if directory.exists()
            && let Err(error) = self.forget_saved(None).await
        {
            tracing::error!(error = chain(&error), "what an earlier pause left cannot be removed");
        }
        let (engine, spec) = (Arc::clone(&self.core.engine), self.core.machine_spec(&self.row));
        let save = Save { directory: directory.clone(), then: Then::End };
        // Whatever is asked for meanwhile waits in the queue: a save cannot be taken back once the kernel is at it.
        match engine.save(&spec, &machine, &save).await {
            Ok(_) => self.saved().await,
            Err(error) => {
                tracing::error!(error = chain(&error), "a machine could not be saved");
                if machine.has_exited() || matches!(error, SaveError::Ended { .. } | SaveError::Lingers { .. }) {
                    return self.finish_broken_save(&directory).await;
                }
                self.pause_failed(reason_of(&error)).await
            }
        }
    }

    /// What to do about a pause that an earlier run of the daemon had begun.
    pub(super) async fn finish_pause(&mut self) -> Next {
        let directory = self.core.data.pause(self.row.id, FIRST);
        if directory.exists() {
            return self.finish_broken_save(&directory).await;
        }
        let Some(record) = self.record() else { return self.finish_broken_save(&directory).await };
        let (core, spec) = (Arc::clone(&self.core), self.core.machine_spec(&self.row));
        let adopted = self.unless_commanded(async { core.engine.adopt(&spec, &record).await }).await;
        match adopted {
            Ok(Ok(machine)) => {
                core.metrics.count(Count::Adopted);
                self.machine = Some(Arc::new(machine));
                Next::Pause { cause: "begun before the service stopped".into() }
            }
            Ok(Err(AdoptError::Gone { .. } | AdoptError::Record { .. })) => self.finish_broken_save(&directory).await,
            // It may be writing itself out at this moment.
            Ok(Err(_)) => Next::Adopt,
            Err(next) => next,
        }
    }

    /// The machine has ended; whether it was saved decides what that means.
    async fn finish_broken_save(&mut self, directory: &Path) -> Next {
        if let Some(next) = self.end_machine().await {
            return next;
        }
        let engine = Arc::clone(&self.core.engine);
        match engine.finish_save(directory).await {
            Ok(Some(manifest)) => {
                self.row.template = manifest.template;
                self.saved().await
            }
            Ok(None) => Next::Fail { reason: "the sandbox's machine ended before it was saved".to_owned() },
            Err(error) => {
                tracing::error!(error = chain(&error), "a save cannot be finished");
                Next::Fail { reason: "the sandbox's machine ended, and what it saved cannot be used".to_owned() }
            }
        }
    }

    /// The saved machine is whole.
    async fn saved(&mut self) -> Next {
        if let Some(machine) = &self.machine {
            self.row.template.clone_from(&machine.record.template);
        }
        if let Some(next) = self.end_machine().await {
            return next;
        }
        match files::stamp(self.core.data.disk(self.row.id)).await {
            Ok(stamp) => self.row.disk_stamp = Some(stamp),
            Err(error) => {
                tracing::error!(error = chain(&error), "the disk cannot be looked at");
                return Next::Fail { reason: "the disk of the sandbox cannot be found".to_owned() };
            }
        }
        self.row.pause = Some(FIRST);
        self.row.fresh = false;
        self.row.paused_at = Some(self.core.clock.now());
        self.row.step = None;
        // Given back before anybody is told, so that who hears of it finds the room free.
        self.place = None;
        self.commit(Event::Paused, None).await;
        self.core.metrics.time(Timing::Pause, self.since.elapsed());
        tracing::info!(milliseconds = self.since.elapsed().as_secs_f64() * 1000.0, "the sandbox is paused");
        Next::Hold
    }

    /// The machine runs on.
    async fn pause_failed(&mut self, reason: String) -> Next {
        self.row.desired = Desired::Running;
        self.row.reason = Some(reason.clone());
        if let Err(error) = self.forget_saved(None).await {
            tracing::error!(error = chain(&error), "what a failed pause left cannot be removed");
        }
        debug_assert_eq!(self.row.state, State::Pausing);
        self.commit(Event::PauseFailed, Some(reason)).await;
        Next::Serve
    }

    /// Removes the saved machines of this sandbox but the one with this number.
    pub(super) async fn forget_saved(&self, keep: Option<u32>) -> Result<(), files::FileError> {
        files::remove_pauses(self.core.data.sandbox(self.row.id), keep).await
    }
}

/// Why a pause did not work, for the owner of the sandbox.
pub(super) fn reason_of(error: &SaveError) -> String {
    match error {
        SaveError::Kernel { .. } => "the guest's kernel could not save itself",
        SaveError::Control { .. } => "the guest's kernel did not answer the wish to save itself",
        SaveError::Disk { .. } => "the disk could not be copied",
        SaveError::Write { .. } => "the saved machine could not be written; the host's disk may be full",
        SaveError::Ended { .. } => "the guest's kernel ended while it was being saved",
        _ => "the machine could not be saved; the service's log has the details",
    }
    .to_owned()
}
