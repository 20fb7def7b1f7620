//! `hutch exec`.

use clap::Args;
use hutch_api::ExecuteResult;
use serde::Serialize;

use crate::context::Context;
use crate::execution::{ExecutionOptions, execute};
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;

const AFTER_HELP: &str = "\
Examples:
  hutch exec box -- uname -r
  hutch exec box --cwd /srv --user nobody --timeout 1m -- ./job
  hutch exec box -- sh -c 'ls /tmp | wc -l'
  echo hello | hutch exec box -- cat

The command is executed as it stands; for a shell write `sh -c '…'`. Ctrl-C kills it.";

/// Run a command in a sandbox
///
/// Its output is passed on as it comes, and its exit code is this command's.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Exec {
    /// The sandbox, by name or id
    sandbox: String,
    #[command(flatten)]
    execution: ExecutionOptions,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    run_ms: f64,
    result: &'a ExecuteResult,
}

impl Exec {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let ours = |failure: Failure| failure.with_code(Failure::OURS);
        let service = context.service().map_err(ours)?;
        let mut signals = Signals::take().map_err(ours)?;
        let work = async {
            let input = self.execution.input(context).await?;
            let request = self.execution.request_with_variables(&self.command);
            execute(context, &service, &self.sandbox, request, input).await
        };
        let ended = tokio::select! {
            ended = work => ended.map_err(ours)?,
            // Dropping the work closes the connection, which kills the command.
            code = signals.next() => return Ok(code),
        };
        ended.remark(self.execution.timeout);
        if context.json() {
            output::print_json(&Report { run_ms: ended.took.as_secs_f64() * 1000.0, result: &ended.result })?;
        }
        Ok(ended.code())
    }
}
