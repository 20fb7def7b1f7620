//! The contributor's tool: `cargo xtask <command>`.

use clap::{Parser, Subcommand};

/// The contributor's tool.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {}
}
