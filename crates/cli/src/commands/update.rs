//! `hutch update`.

use clap::Args;
use hutch_api::UpdateSandbox;

use super::create::title;
use crate::context::Context;
use crate::execution::variables;
use crate::failure::Failure;
use crate::idle::Limits;
use crate::output;
use crate::pair::{self, Assignment};

const AFTER_HELP: &str = "\
Examples:
  hutch update box --auto-pause 10m       pause it when it was idle for ten minutes
  hutch update box --auto-destroy off     never destroy it for idleness
  hutch update box --lifetime 2h          destroy it two hours from now
  hutch update box --label job=7

Idle is a sandbox to which nobody speaks, in which no command runs and whose processor hardly works.";

/// Change when a sandbox pauses or ends by itself, and its labels
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Update {
    /// The sandbox, by name or id
    sandbox: String,
    #[command(flatten)]
    limits: Limits,
    /// The labels, in place of those it has; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair::assignment)]
    label: Vec<Assignment>,
}

impl Update {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let change = UpdateSandbox {
            auto_pause_after_seconds: self.limits.auto_pause(),
            disable_auto_pause: self.limits.never_pauses(),
            auto_destroy_after_seconds: self.limits.auto_destroy(),
            disable_auto_destroy: self.limits.never_destroys(),
            lifetime_seconds: self.limits.changed_lifetime()?,
            labels: (!self.label.is_empty()).then(|| variables(&self.label)),
            ..UpdateSandbox::default()
        };
        if change == UpdateSandbox::default() {
            return Err(Failure::new("there is nothing to change").with_hint("`hutch update --help` lists what can be"));
        }
        let service = context.service()?;
        let changed = service.client().update_sandbox(&self.sandbox, &change).await;
        let view = changed.map_err(|error| service.explain(&error))?;
        context.tell(&format!("changed: {}", title(&view)));
        if context.json() {
            output::print_json(&view)?;
        }
        Ok(0)
    }
}
