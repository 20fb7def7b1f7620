//! The contributor's tool: `cargo xtask <command>`.

mod bench;
mod codegen;
mod e2e;
mod guest;
mod kernel;
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
    /// Build what every sandbox starts from: guest kernel, agent, boot image.
    Guest(guest::Options),
    /// Build the user-mode guest kernel.
    Kernel(kernel::Options),
    /// Write the references that are made from the program, or check them.
    Codegen(codegen::Options),
    /// Check the rules that a compiler does not know: arrows, names, sizes, links, commits.
    Tidy,
    /// Measure Hutch beside gVisor and keep every sample.
    Bench(bench::Options),
    /// Tell the stories: the service, real sandboxes and the official clients.
    E2e(e2e::Stories),
    /// Create and destroy while the service, kernels and agents are killed.
    Chaos(e2e::Chaos),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Guest(options) => guest::run(&options),
        Command::Kernel(options) => kernel::run(&options),
        Command::Codegen(options) => codegen::run(&options),
        Command::Tidy => tidy::run(),
        Command::Bench(options) => bench::run(&options),
        Command::E2e(stories) => e2e::run(&stories),
        Command::Chaos(chaos) => e2e::chaos(&chaos),
    }
}
