//! `hutch ls`.

use std::collections::BTreeMap;

use clap::Args;
use hutch_api::{SandboxFilter, SandboxStatus, SandboxView, Timestamp};
use hutch_units::SandboxName;

use crate::context::Context;
use crate::duration;
use crate::execution::variables;
use crate::failure::Failure;
use crate::output;
use crate::pair::{self, Assignment};
use crate::table::Table;

const AFTER_HELP: &str = "\
Examples:
  hutch ls
  hutch ls --all                       those that have ended too
  hutch ls --status paused
  hutch ls --label job=7 --json        for a program
  hutch rm $(hutch ls -q --label job=7)";

/// List sandboxes
///
/// Shows those that have not ended, newest first: how old each is, for how long it has been paused, and what it was
/// forked from. With --quiet only their ids.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct List {
    /// Those that have ended too, as long as the service remembers them
    #[arg(long, short, conflicts_with = "status")]
    all: bool,
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = status)]
    status: Option<SandboxStatus>,
    /// Only those with this label; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair::assignment)]
    label: Vec<Assignment>,
    /// Only the one with this name
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<SandboxName>,
}

fn status(text: &str) -> Result<SandboxStatus, String> {
    let choices = || SandboxStatus::ALL.map(SandboxStatus::as_str).join(" ");
    SandboxStatus::parse(text).ok_or_else(|| format!("unknown state, choices: [{}]", choices()))
}

fn name(text: &str) -> Result<SandboxName, String> {
    SandboxName::parse(text).map_err(|error| error.to_string())
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let sandboxes = self.sandboxes(context).await?;
        if context.json() {
            output::print_json(&sandboxes)?;
        } else if context.quiet() {
            let ids: Vec<String> = sandboxes.iter().map(|sandbox| format!("{}\n", sandbox.id)).collect();
            output::print(&ids.concat())?;
        } else if sandboxes.is_empty() {
            context.tell("no sandboxes; `hutch create` makes one");
        } else {
            output::print(&table(&sandboxes, Timestamp::now()).fitting())?;
        }
        Ok(0)
    }

    async fn sandboxes(&self, context: &Context) -> Result<Vec<SandboxView>, Failure> {
        let service = context.service()?;
        let (name, labels) = (self.name.clone(), variables(&self.label));
        let mut filter = SandboxFilter { status: self.status, labels, name };
        let mut found = service.client().list_sandboxes(&filter).await.map_err(|error| service.explain(&error))?;
        if self.all {
            for status in [SandboxStatus::Failed, SandboxStatus::Destroyed] {
                filter.status = Some(status);
                let ended = service.client().list_sandboxes(&filter).await;
                found.extend(ended.map_err(|error| service.explain(&error))?);
            }
            // One may have ended between the questions.
            found.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.id)));
            found.dedup_by(|a, b| a.id == b.id);
        }
        Ok(found)
    }
}

fn table(sandboxes: &[SandboxView], now: Timestamp) -> Table {
    let names: BTreeMap<_, _> = sandboxes.iter().filter_map(|one| Some((one.id, one.name.as_ref()?))).collect();
    let mut table = Table::new(["NAME", "ID", "STATUS", "AGE", "PAUSED", "IMAGE", "SHAPE", "FORKED FROM"]);
    table.keep_whole("ID");
    for sandbox in sandboxes {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let named = |id| names.get(&id).map_or_else(|| id.to_string(), ToString::to_string);
        // A sandbox that was resumed keeps the time of its last pause.
        let paused_at = sandbox.paused_at.filter(|_| sandbox.status == SandboxStatus::Paused);
        table.row([
            sandbox.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            sandbox.id.to_string(),
            sandbox.status.as_str().to_owned(),
            duration::since(sandbox.created_at, now),
            paused_at.map(|paused_at| duration::since(paused_at, now)).unwrap_or_default(),
            text(&sandbox.rootfs),
            text(&sandbox.shape),
            sandbox.forked_from.map(named).unwrap_or_default(),
        ]);
    }
    table.without_empty()
}
