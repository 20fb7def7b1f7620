//! `hutch rm`.

use clap::Args;
use hutch_api::{DestroyedSandbox, SandboxFilter};

use crate::context::{Context, Remote};
use crate::execution::variables;
use crate::failure::Failure;
use crate::output;
use crate::pair::{self, Assignment};

const AFTER_HELP: &str = "\
Examples:
  hutch rm box
  hutch rm --label job=7      all with this label
  hutch rm --all              all there are";

/// Destroy sandboxes with all that is in them
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Remove {
    /// The sandboxes, by name or id
    #[arg(required_unless_present_any = ["all", "label"])]
    sandboxes: Vec<String>,
    /// All with this label; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair::assignment, conflicts_with_all = ["sandboxes", "all"])]
    label: Vec<Assignment>,
    /// All of the account
    #[arg(long, conflicts_with = "sandboxes")]
    all: bool,
}

impl Remove {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let mut destroyed = Vec::new();
        let mut failed = None;
        for sandbox in self.chosen(&service).await? {
            match service.client().destroy_sandbox(&sandbox).await {
                Ok(answer) => {
                    context.tell(&format!("destroyed: {sandbox}"));
                    destroyed.push(answer);
                }
                // The others are destroyed all the same.
                Err(error) => failed = failed.or(Some(service.explain(&error))),
            }
        }
        if context.json() {
            output::print_json::<Vec<DestroyedSandbox>>(&destroyed)?;
        }
        failed.map_or(Ok(0), Err)
    }

    async fn chosen(&self, service: &Remote) -> Result<Vec<String>, Failure> {
        if !self.sandboxes.is_empty() {
            return Ok(self.sandboxes.clone());
        }
        let filter = SandboxFilter { labels: variables(&self.label), ..SandboxFilter::default() };
        let found = service.client().list_sandboxes(&filter).await.map_err(|error| service.explain(&error))?;
        Ok(found.iter().map(|sandbox| sandbox.id.to_string()).collect())
    }
}
