//! `hutch whoami`.

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// Show whose key is used, and how many sandboxes there are
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  hutch whoami\n  HUTCH_API_KEY=skp_… hutch whoami --json")]
pub struct WhoAmI {}

impl WhoAmI {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let who = service.client().who_am_i().await.map_err(|error| service.explain(&error))?;
        if context.json() {
            output::print_json(&who)?;
        } else {
            let (stats, address) = (who.stats, service.client().address());
            output::print(&format!(
                "account    {}\nservice    {address}\nsandboxes  {} running, {} paused, {} other\n",
                who.user_id, stats.running, stats.paused, stats.other
            ))?;
        }
        Ok(0)
    }
}
