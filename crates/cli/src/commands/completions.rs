//! `hutch completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  hutch completions bash > /etc/bash_completion.d/hutch
  hutch completions zsh > ~/.zfunc/_hutch
  hutch completions fish > ~/.config/fish/completions/hutch.fish";

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "hutch", &mut text);
        output::print(&String::from_utf8_lossy(&text))?;
        Ok(0)
    }
}
