//! `hutch push`.

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::transfer;

const AFTER_HELP: &str = "\
Examples:
  hutch push box data.csv /root/data.csv
  hutch push box data.csv /root/            the same: a / at the end keeps the name
  hutch push box src /root/src              a folder with all that is in it
  pg_dump shop | hutch push box - /root/shop.sql";

/// Bring a file or a folder into a sandbox
///
/// Missing folders are made; an existing file is replaced when the new one is complete.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Push {
    /// The sandbox, by name or id
    sandbox: String,
    /// The file or folder on this machine; - is standard input
    local: PathBuf,
    /// Its absolute path in the sandbox
    remote: String,
}

impl Push {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let moved = transfer::push(context, &service, &self.sandbox, &self.local, &self.remote).await?;
        if context.json() {
            output::print_json(&moved)?;
        }
        Ok(0)
    }
}
