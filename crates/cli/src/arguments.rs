//! What can be typed.

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    audit, completions, create, doctor, exec, fork, get, images, keys, list, pause, pull, push, reference, remove,
    resume, run, serve, snapshot, update, usage, version, whoami,
};
use crate::context::Context;
use crate::failure::Failure;

const AFTER_HELP: &str = "\
Examples:
  hutch serve                            start the service (as root)
  hutch run -- python3 -c 'print(6*7)'   run a command in a fresh sandbox
  hutch run --file script.py             run a script in a fresh sandbox
  hutch create --name box                create a sandbox that stays
  hutch exec box -- uname -r             run a command in it
  hutch pause box                        save its memory, free all that it holds
  hutch resume box                       bring it back as it was
  hutch fork box --count 8               eight copies of it, processes and all
  hutch snapshot create box --name clean keep this moment under a name
  hutch create --snapshot clean          a sandbox that begins there
  hutch rm box                           destroy it

Environment:
  HUTCH_URL      the service; without it the one that runs on this machine
  HUTCH_API_KEY  the key; without it the one in the service's data directory
  HUTCH_DATA     the data directory, /var/lib/hutch without it
  HUTCH_CACHE    the directory of built images, /var/cache/hutch without it
  HUTCH_GUEST    the directory of the guest's kernel and boot image
  HUTCH_CA       certificates to trust for an https service, in PEM form
  HUTCH_LOG      what the service logs, for example debug
  NO_COLOR       no colours

Exit codes:
  0    success
  1    the command failed
  2    it was typed wrongly
  124  run, exec: the command took longer than --timeout
  125  run, exec: Hutch failed, not the command
  126  run, exec: the program cannot be executed
  127  run, exec: there is no such program
  128+n  ended by signal n
  otherwise run and exec end with the exit code of their command";

/// A computer of its own for every AI agent
///
/// Hutch runs untrusted code in sandboxes. Each has a Linux kernel and a disk of its own, separate from this machine,
/// and is gone without a trace when it is done.
#[derive(Debug, Parser)]
#[command(name = "hutch", version, max_term_width = 100, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
    /// Print nothing but data and errors
    #[arg(long, short, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    /// The service to speak to; without it the one that runs on this machine
    #[arg(long, global = true, env = "HUTCH_URL", hide_env_values = true, help_heading = "Common options")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Create(create::Create),
    Ls(list::List),
    Get(get::Get),
    Exec(exec::Exec),
    Push(push::Push),
    Pull(pull::Pull),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Fork(fork::Fork),
    Snapshot(snapshot::Snapshot),
    Update(update::Update),
    Rm(remove::Remove),
    Usage(usage::Usage),
    Images(images::Images),
    Whoami(whoami::WhoAmI),
    Serve(serve::Serve),
    Doctor(doctor::Doctor),
    Audit(audit::Audit),
    Keys(keys::Keys),
    Version(version::Version),
    Completions(completions::Completions),
    #[command(hide = true)]
    Reference(reference::Reference),
}

impl Arguments {
    /// Does what was typed and returns the exit code.
    ///
    /// # Errors
    /// [`Failure`], to be printed; it has an exit code of its own.
    pub async fn run(self) -> Result<u8, Failure> {
        let context = Context::new(self.global);
        match self.command {
            Command::Run(command) => command.run(&context).await,
            Command::Create(command) => command.run(&context).await,
            Command::Ls(command) => command.run(&context).await,
            Command::Get(command) => command.run(&context).await,
            Command::Exec(command) => command.run(&context).await,
            Command::Push(command) => command.run(&context).await,
            Command::Pull(command) => command.run(&context).await,
            Command::Pause(command) => command.run(&context).await,
            Command::Resume(command) => command.run(&context).await,
            Command::Fork(command) => command.run(&context).await,
            Command::Snapshot(command) => command.run(&context).await,
            Command::Update(command) => command.run(&context).await,
            Command::Rm(command) => command.run(&context).await,
            Command::Usage(command) => command.run(&context).await,
            Command::Images(command) => command.run(&context).await,
            Command::Whoami(command) => command.run(&context).await,
            Command::Serve(command) => command.run().await,
            Command::Doctor(command) => command.run(&context).await,
            Command::Audit(command) => command.run(&context).await,
            Command::Keys(command) => command.run(&context),
            Command::Version(command) => command.run(&context).await,
            Command::Completions(command) => command.run(),
            Command::Reference(command) => command.run(),
        }
    }
}
