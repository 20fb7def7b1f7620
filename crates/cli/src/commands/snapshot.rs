//! `hutch snapshot`.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::{Args, Subcommand};
use futures_util::StreamExt as _;
use hutch_api::{
    CreateSnapshot, DeletedSnapshot, SandboxFilter, SandboxReference, SnapshotFilter, SnapshotView, Timestamp,
};
use hutch_units::{Bytes, SandboxId};

use super::create::title;
use super::get::lines;
use crate::context::{Context, Remote};
use crate::duration;
use crate::execution::variables;
use crate::failure::Failure;
use crate::output;
use crate::pair::{self, Assignment};
use crate::progress::Progress;
use crate::selection::each;
use crate::table::Table;
use crate::tree::Tree;

const AFTER_HELP: &str = "\
Examples:
  hutch snapshot create box --name clean     box may run or be paused; it goes on
  hutch snapshot ls                          all, as the tree that they make
  hutch create --snapshot clean              a new sandbox that begins there
  hutch snapshot restore box clean           box itself goes back
  hutch snapshot rm clean

A snapshot is a sandbox's memory, processes and disk of a moment. It stays when its sandbox is gone.";

/// Keep moments of sandboxes: take, list and delete snapshots, go back to one
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Snapshot {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Take a snapshot of a running or paused sandbox and print its id
    Create {
        /// The sandbox, by name or id
        sandbox: String,
        /// The snapshot's name: up to 63 of a-z, 0-9, hyphens and dots; without it only its id names it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// What it is for
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// A mark of yours; may be given several times
        #[arg(long, value_name = "KEY=VALUE", value_parser = pair::assignment)]
        label: Vec<Assignment>,
    },
    /// List snapshots, each below the one that its sandbox had come from; with --quiet only ids
    Ls {
        /// Only those taken of this sandbox, by name or id
        #[arg(long, value_name = "SANDBOX")]
        sandbox: Option<String>,
    },
    /// Show all about a snapshot
    Get {
        /// The snapshot, by name or id
        snapshot: String,
    },
    /// Delete snapshots; sandboxes that were made from them stay
    Rm {
        /// The snapshots, by name or id
        #[arg(required = true)]
        snapshots: Vec<String>,
    },
    /// Put a sandbox back to a snapshot; what it is now is lost
    Restore {
        /// The sandbox, by name or id
        sandbox: String,
        /// The snapshot, by name or id
        snapshot: String,
    },
}

impl Snapshot {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        match &self.action {
            Action::Create { sandbox, name, description, label } => {
                let (name, description) = (name.clone(), description.clone());
                let request = CreateSnapshot { name, description, labels: variables(label) };
                create(context, &service, sandbox, &request).await
            }
            Action::Ls { sandbox } => list(context, &service, sandbox.as_deref()).await,
            Action::Get { snapshot } => get(context, &service, snapshot).await,
            Action::Rm { snapshots } => remove(context, &service, snapshots).await,
            Action::Restore { sandbox, snapshot } => restore(context, &service, sandbox, snapshot).await,
        }
    }
}

async fn create(context: &Context, service: &Remote, sandbox: &str, request: &CreateSnapshot) -> Result<u8, Failure> {
    let began = Instant::now();
    let taken = {
        let _progress = Progress::spinner(context, &format!("taking a snapshot of {sandbox}"));
        service.client().create_snapshot(sandbox, request).await.map_err(|error| service.explain(&error))?
    };
    let (size, time) = (Bytes(taken.size_bytes), duration::show(began.elapsed()));
    context.tell(&format!("taken: {} of {sandbox}, {size} in {time}", shown(&taken)));
    if context.json() {
        output::print_json(&taken)?;
    } else {
        output::print(&format!("{}\n", taken.id))?;
    }
    Ok(0)
}

async fn list(context: &Context, service: &Remote, sandbox: Option<&str>) -> Result<u8, Failure> {
    let explain = |error: &_| service.explain(error);
    let named = |text| SandboxReference::parse(text).map_err(|error| Failure::of(&error));
    let filter = SnapshotFilter { sandbox: sandbox.map(named).transpose()?, name: None };
    let snapshots = service.client().list_snapshots(&filter).await.map_err(|error| explain(&error))?;
    if context.json() {
        output::print_json(&snapshots)?;
    } else if context.quiet() {
        output::print(&snapshots.iter().map(|snapshot| format!("{}\n", snapshot.id)).collect::<String>())?;
    } else if snapshots.is_empty() {
        context.tell("no snapshots; `hutch snapshot create` takes one");
    } else {
        let living =
            service.client().list_sandboxes(&SandboxFilter::default()).await.map_err(|error| explain(&error))?;
        let names = living.iter().filter_map(|one| Some((one.id, one.name.as_ref()?.to_string()))).collect();
        output::print(&table(&snapshots, &names, Timestamp::now()).fitting())?;
    }
    Ok(0)
}

async fn get(context: &Context, service: &Remote, snapshot: &str) -> Result<u8, Failure> {
    let snapshot = service.client().snapshot(snapshot).await.map_err(|error| service.explain(&error))?;
    if context.json() {
        output::print_json(&snapshot)?;
    } else {
        output::print(&lines(&snapshot)?)?;
    }
    Ok(0)
}

async fn remove(context: &Context, service: &Remote, snapshots: &[String]) -> Result<u8, Failure> {
    let (mut deleted, mut failures) = (Vec::new(), Vec::new());
    let mut outcomes =
        std::pin::pin!(each(snapshots, async |snapshot| service.client().delete_snapshot(snapshot).await));
    while let Some((snapshot, outcome)) = outcomes.next().await {
        match outcome {
            Ok(answer) => {
                context.tell(&format!("deleted: {snapshot}"));
                deleted.push(answer);
            }
            Err(error) => failures.push((snapshot, service.explain(&error))),
        }
    }
    if context.json() {
        output::print_json::<Vec<DeletedSnapshot>>(&deleted)?;
    }
    Failure::of_each(failures).map_or(Ok(0), Err)
}

async fn restore(context: &Context, service: &Remote, sandbox: &str, snapshot: &str) -> Result<u8, Failure> {
    let began = Instant::now();
    let view = {
        let _progress = Progress::spinner(context, &format!("putting {sandbox} back to {snapshot}"));
        service.client().restore_snapshot(sandbox, snapshot).await.map_err(|error| service.explain(&error))?
    };
    let time = duration::show(began.elapsed());
    context.tell(&format!("{}: {} as it was at {snapshot}, in {time}", view.status.as_str(), title(&view)));
    if context.json() {
        output::print_json(&view)?;
    }
    Ok(0)
}

/// Name and id.
fn shown(snapshot: &SnapshotView) -> String {
    let name = snapshot.name.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    format!("{name}({})", snapshot.id)
}

fn table(snapshots: &[SnapshotView], names: &BTreeMap<SandboxId, String>, now: Timestamp) -> Table {
    let mut table = Table::new(["SNAPSHOT", "ID", "OF", "AGE", "SIZE", "STATUS"]);
    table.keep_whole("ID");
    let mut oldest_first: Vec<&SnapshotView> = snapshots.iter().collect();
    oldest_first.sort_by_key(|snapshot| (snapshot.created_at, snapshot.id));
    let tree = Tree::new(oldest_first, |snapshot| snapshot.id, |snapshot| snapshot.parent);
    for (branch, snapshot) in tree.rows() {
        let name = snapshot.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let of = names.get(&snapshot.sandbox).cloned().unwrap_or_else(|| snapshot.sandbox.to_string());
        table.row([
            format!("{branch}{name}"),
            snapshot.id.to_string(),
            of,
            duration::since(snapshot.created_at, now),
            Bytes(snapshot.size_bytes).to_string(),
            snapshot.status.as_str().to_owned(),
        ]);
    }
    table
}
