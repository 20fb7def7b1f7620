//! `hutch version`.

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// Show the version of this program and whether a service answers
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  hutch version\n  hutch version --json")]
pub struct Version {}

impl Version {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let service = context.service()?;
        let (address, is_up) = (service.client().address(), service.client().health().await.is_ok());
        if context.json() {
            output::print_json(&json!({ "version": version, "service": { "address": address, "up": is_up } }))?;
        } else {
            let state = if is_up { "answers" } else { "does not answer" };
            output::print(&format!("hutch {version}\nservice at {address} {state}\n"))?;
        }
        Ok(0)
    }
}
