//! `hutch pause`.

use clap::Args;
use hutch_api::{OperationId, SandboxStatus};

use crate::context::Context;
use crate::failure::Failure;
use crate::selection::Selection;
use crate::transition::{Transition, Waiting};

const AFTER_HELP: &str = "\
Examples:
  hutch pause box
  hutch pause --label job=7      all that run with this label
  hutch pause box --no-wait      begin it and go on

A command that runs in it goes on after `hutch resume`; who waits for its output is told that the sandbox was paused.";

/// Save a sandbox's memory to disk and free all that it holds
///
/// Its processes are gone from this machine but for their saved memory: they use no processor and no memory until
/// `hutch resume` brings them back as they were.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Pause {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    waiting: Waiting,
}

impl Pause {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let transition = Transition {
            operation: OperationId::PauseSandbox,
            from: SandboxStatus::Running,
            during: "pausing",
            done: "paused",
        };
        transition.make(context, &self.selection, self.waiting).await
    }
}
