//! `hutch resume`.

use clap::Args;
use hutch_api::{OperationId, SandboxStatus};

use crate::context::Context;
use crate::failure::Failure;
use crate::selection::Selection;
use crate::transition::{Transition, Waiting};

const AFTER_HELP: &str = "\
Examples:
  hutch resume box
  hutch resume --all      all that are paused

A sandbox in the state `error` is tried again.";

/// Bring a paused sandbox back as it was
///
/// Processes, open files and connections inside of it go on where they were; its clock is set right.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Resume {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    waiting: Waiting,
}

impl Resume {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let transition = Transition {
            operation: OperationId::ResumeSandbox,
            from: SandboxStatus::Paused,
            during: "resuming",
            done: "running",
        };
        transition.make(context, &self.selection, self.waiting).await
    }
}
