//! `hutch rm`.

use clap::Args;
use futures_util::StreamExt as _;
use hutch_api::DestroyedSandbox;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::selection::{Selection, each};

const AFTER_HELP: &str = "\
Examples:
  hutch rm box
  hutch rm --label job=7      all with this label
  hutch rm --all              all there are";

/// Destroy sandboxes with all that is in them
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Remove {
    #[command(flatten)]
    selection: Selection,
}

impl Remove {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let names = self.selection.chosen(&service, None).await?;
        let (mut destroyed, mut failures) = (Vec::new(), Vec::new());
        let mut outcomes = std::pin::pin!(each(&names, async |name| service.client().destroy_sandbox(name).await));
        // The others are destroyed even when one fails.
        while let Some((name, outcome)) = outcomes.next().await {
            match outcome {
                Ok(answer) => {
                    context.tell(&format!("destroyed: {name}"));
                    destroyed.push(answer);
                }
                Err(error) => failures.push((name, service.explain(&error))),
            }
        }
        if context.json() {
            output::print_json::<Vec<DestroyedSandbox>>(&destroyed)?;
        }
        Failure::of_each(failures).map_or(Ok(0), Err)
    }
}
