//! From one state to another: what `pause` and `resume` share.

use std::time::{Duration, Instant};

use clap::Args;
use futures_util::StreamExt as _;
use hutch_api::client::ClientError;
use hutch_api::{OperationId, SandboxStatus, SandboxView, Until};

use crate::commands::create::title;
use crate::context::{Context, Remote};
use crate::duration;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::selection::{Selection, each};

/// Whether the end of the change is waited for.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Waiting {
    /// Return when it is done; this is what happens without it, too
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,
    /// Return as soon as it is begun
    #[arg(long, overrides_with = "wait")]
    no_wait: bool,
}

impl Waiting {
    fn until(self) -> Until {
        if self.no_wait && !self.wait { Until::Accepted } else { Until::Settled }
    }
}

/// A change that a command makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transition {
    pub(crate) operation: OperationId,
    /// The state of those that `--all` and `--label` mean.
    pub(crate) from: SandboxStatus,
    /// What is said while it lasts.
    pub(crate) during: &'static str,
    /// What is said when it is done.
    pub(crate) done: &'static str,
}

impl Transition {
    /// Makes the change to each sandbox. The others are changed even when one fails.
    pub(crate) async fn make(self, context: &Context, selection: &Selection, waiting: Waiting) -> Result<u8, Failure> {
        let service = context.service()?;
        let names = selection.chosen(&service, Some(self.from)).await?;
        if names.is_empty() {
            context.tell(&format!("nothing is {}", self.from.as_str()));
        }
        let text = match names.as_slice() {
            [name] => format!("{} {name}", self.during),
            names => format!("{} {} sandboxes", self.during, names.len()),
        };
        let progress = Progress::spinner(context, &text);
        let (mut views, mut failures) = (Vec::new(), Vec::new());
        let mut outcomes = std::pin::pin!(each(&names, |name| self.one(&service, name, waiting.until())));
        while let Some((name, outcome)) = outcomes.next().await {
            match outcome {
                Ok((view, took)) => {
                    progress.above(|| context.tell(&self.sentence(&view, took)));
                    views.push(view);
                }
                Err(error) => failures.push((name, service.explain(&error))),
            }
        }
        drop(progress);
        if context.json() {
            output::print_json(&views)?;
        }
        Failure::of_each(failures).map_or(Ok(0), Err)
    }

    async fn one(self, service: &Remote, name: &str, until: Until) -> Result<(SandboxView, Duration), ClientError> {
        let began = Instant::now();
        let view = if self.operation == OperationId::PauseSandbox {
            service.client().pause_sandbox(name, until).await?
        } else {
            service.client().resume_sandbox(name, until).await?
        };
        Ok((view, began.elapsed()))
    }

    fn sentence(self, view: &SandboxView, took: Duration) -> String {
        match view.status {
            SandboxStatus::Pausing | SandboxStatus::Resuming => format!("{}: {}", view.status.as_str(), title(view)),
            _ => format!("{}: {} in {}", self.done, title(view), duration::show(took)),
        }
    }
}
