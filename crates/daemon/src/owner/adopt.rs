//! Finding the machine of a running sandbox again: after the daemon was restarted, or after the connection to the
//! agent was lost.

use std::sync::Arc;
use std::time::Duration;

use hutch_engine::{AdoptError, MachineRecord};

use super::task::{Next, Task};
use crate::lifecycle::State;
use crate::metrics::Count;
use crate::report::chain;

/// How often a machine that lives is tried before it is given up. A guest that is busy to its limits answers late.
const ATTEMPTS: u32 = 6;
/// How long after a failed attempt the next one follows; doubles each time.
const DELAY: Duration = Duration::from_millis(250);

impl Task {
    pub(super) async fn adopt(&mut self) -> Next {
        let Some(record) = self.record() else {
            return Next::Fail { reason: "the service has no usable record of the sandbox's machine".to_owned() };
        };
        let core = Arc::clone(&self.core);
        let spec = core.machine_spec(&self.row);
        let mut delay = DELAY;
        for attempt in 1..=ATTEMPTS {
            let attempted = async {
                let _turn = core.adoptions.acquire().await;
                core.engine.adopt(&spec, &record).await
            };
            let error = match self.unless_commanded(attempted).await {
                Ok(Ok(machine)) => {
                    core.metrics.count(Count::Adopted);
                    tracing::info!(attempt, "the machine was found again");
                    self.machine = Some(Arc::new(machine));
                    match self.row.state {
                        // What was promised is begun anew.
                        State::Pausing => return Next::Pause { cause: "begun before the service stopped".into() },
                        State::Resuming => self.came_back(Some("the service stopped meanwhile".to_owned())).await,
                        _ => self.publish(),
                    }
                    return Next::Serve;
                }
                Ok(Err(error)) => error,
                Err(next) => return next,
            };
            if matches!(error, AdoptError::Gone { .. } | AdoptError::Record { .. }) {
                tracing::warn!(error = chain(&error), "the machine is gone");
                if self.row.state == State::Pausing {
                    return Next::FinishPause;
                }
                return Next::Fail { reason: "the sandbox's machine ended while the service did not run".to_owned() };
            }
            core.metrics.count(Count::AgentError);
            tracing::warn!(attempt, error = chain(&error), "the machine does not answer yet");
            if let Err(next) = self.unless_commanded(tokio::time::sleep(delay)).await {
                return next;
            }
            delay *= 2;
        }
        Next::Fail { reason: "the sandbox's agent does not answer".to_owned() }
    }

    /// The engine's record; `None` when there is none that this program can read.
    pub(super) fn record(&self) -> Option<MachineRecord> {
        let text = self.row.machine.as_deref()?;
        serde_json::from_str(text)
            .inspect_err(|error| tracing::error!(%error, "the record of a machine cannot be read"))
            .ok()
    }

    /// Completes with the work, or with what is to be done instead of it.
    pub(super) async fn unless_commanded<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Next> {
        let core = Arc::clone(&self.core);
        let mut work = std::pin::pin!(work);
        let mut stopped = std::pin::pin!(core.stopped());
        loop {
            let command = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                command = self.commands.recv() => command,
                () = &mut stopped => return Err(Next::End),
            };
            if let Some(next) = self.obey(command).await {
                return Err(next);
            }
        }
    }
}
