//! `hutch reference`, for the project's own use: prints what lies in `docs/reference`.

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::output;

/// Print a reference that is made from the program itself
#[derive(Debug, Args)]
pub struct Reference {
    /// Which one
    what: What,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// The command line, as Markdown
    Cli,
    /// The API, as an OpenAPI document
    Openapi,
}

impl Reference {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        output::print(&match self.what {
            What::Cli => crate::reference::command_line(),
            What::Openapi => crate::reference::openapi(),
        })?;
        Ok(0)
    }
}
