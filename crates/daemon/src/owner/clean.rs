//! Taking everything back that a sandbox has on the host, and letting go of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::handle::Command;
use super::task::{Next, Task};
use crate::lifecycle::{Event, State};
use crate::metrics::{Count, Timing};
use crate::report::chain;

/// Something is left on the host.
#[derive(Debug, thiserror::Error)]
enum CleanError {
    #[error("the machine is not gone")]
    Machine(#[source] hutch_engine::DestroyError),
    #[error("the directory is not gone")]
    Directory(#[source] io::Error),
    #[error("the removal was interrupted")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl Task {
    /// Tries until nothing is left: giving up would leave something behind that nobody owns. When the daemon stops
    /// meanwhile the row still has its slot, and the next run goes on here.
    pub(super) async fn clean(&mut self) -> Next {
        let core = Arc::clone(&self.core);
        let mut delay = Duration::from_millis(100);
        while let Err(error) = self.remove_all().await {
            tracing::error!(error = chain(&error), "something of the sandbox is left on the host; trying again");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = core.stopped() => return Next::End,
            }
            delay = (delay * 2).min(Duration::from_secs(30));
        }
        // Given back before anybody is told, so that who hears of the end finds the room free.
        self.place = None;
        (self.row.slot, self.row.machine, self.row.step) = (None, None, None);
        (self.row.pause, self.row.disk_stamp, self.row.origin) = (None, None, None);
        if self.row.state == State::Destroying {
            self.row.ended_at = Some(core.clock.now());
            self.commit(Event::Destroyed, None).await;
            core.metrics.count(Count::Destroyed);
            core.metrics.time(Timing::Destroy, self.since.elapsed());
            tracing::info!(milliseconds = self.since.elapsed().as_secs_f64() * 1000.0, "the sandbox is gone");
        } else if let Err(error) = self.store(None).await {
            // The row keeps its slot in the store; the next start of the daemon finds nothing left and lets go.
            tracing::error!(error = chain(&error), "the end of a sandbox cannot be stored");
        } else {
            self.publish();
        }
        self.told_to_go()
    }

    async fn remove_all(&self) -> Result<(), CleanError> {
        self.remove_machine().await?;
        let directory = self.core.data.sandbox(self.row.id);
        let removed = tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        removed.await.map_err(CleanError::Interrupted)?.map_err(CleanError::Directory)
    }

    /// Ends the machine and removes all that the engine made for it, without giving up: what was left would run beside
    /// the next one. `None` when it is done, else what has come up instead.
    pub(super) async fn end_machine(&mut self) -> Option<Next> {
        let mut delay = Duration::from_millis(100);
        while let Err(error) = self.remove_machine().await {
            tracing::error!(error = chain(&error), "the machine is not gone; trying again");
            if let Err(next) = self.unless_commanded(tokio::time::sleep(delay)).await {
                return Some(next);
            }
            delay = (delay * 2).min(Duration::from_secs(30));
        }
        (self.machine, self.row.machine) = (None, None);
        None
    }

    async fn remove_machine(&self) -> Result<(), CleanError> {
        let spec = self.core.machine_spec(&self.row);
        let record = self.record();
        self.last_reading(record.as_ref()).await;
        self.core.engine.destroy(&spec, record.as_ref()).await.map_err(CleanError::Machine)
    }

    /// Answers those who wait for it to be gone; a failed sandbox that somebody wants gone goes on to that.
    fn told_to_go(&mut self) -> Next {
        let mut cause = None;
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Destroy { cause: given, done } => {
                    self.waiting.push(done);
                    cause = Some(given);
                }
                Command::Due | Command::Evict { .. } => {}
                // An answer that nobody waits for is no loss.
                Command::Update { done, .. }
                | Command::Pause { done, .. }
                | Command::Resume { done }
                | Command::Restore { done, .. } => drop(done.send(Err(super::task::ended()))),
                Command::Take { done, .. } => drop(done.send(Err(super::task::ended()))),
            }
        }
        match cause {
            Some(cause) if self.row.state == State::Failed => Next::Destroy { cause },
            _ => {
                for done in self.waiting.drain(..) {
                    // Who waited may have gone away.
                    let _ = done.send(());
                }
                Next::End
            }
        }
    }
}
