//! The contributor's tool: `cargo xtask <command>`.

mod tidy;

use clap::{Parser, Subcommand};

/// The contributor's tool.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the rules that a compiler does not know: arrows, names, sizes, links, commits.
    Tidy,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Tidy => tidy::run(),
    }
}
