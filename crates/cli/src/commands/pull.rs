//! `hutch pull`.

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;
use crate::transfer;

const AFTER_HELP: &str = "\
Examples:
  hutch pull box /root/report.json report.json
  hutch pull box /root/report.json             into the working directory
  hutch pull box /root/out out                 a folder with all that is in it
  hutch pull box /var/log/dpkg.log - | tail";

/// Bring a file or a folder out of a sandbox
///
/// A file appears whole or not at all. A folder of an untrusted guest cannot write outside of where it is put.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Pull {
    /// The sandbox, by name or id
    sandbox: String,
    /// The absolute path in the sandbox
    remote: String,
    /// Where to put it; - is standard output (a folder then comes as a tar archive)
    #[arg(default_value = ".")]
    local: PathBuf,
}

impl Pull {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let mut signals = Signals::take()?;
        let moved = tokio::select! {
            moved = transfer::pull(context, &service, &self.sandbox, &self.remote, &self.local) => moved?,
            // Dropping the transfer removes what it had written.
            code = signals.next() => return Ok(code),
        };
        if context.json() && self.local != *"-" {
            output::print_json(&moved)?;
        }
        Ok(0)
    }
}
