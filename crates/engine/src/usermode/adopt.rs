//! Finding a machine again after the service was restarted.

use std::time::Duration;

use hutch_jail::cgroup::Group;

use super::configure::{Role, tell};
use super::console::Console;
use super::process::{self, Process};
use super::teardown::group_of_record;
use super::user_mode::Shared;
use crate::agent::{self, Client, ClientError};
use crate::engine::AdoptError;
use crate::machine::{EngineKind, Machine, MachineRecord, MachineSpec, host_boot_id};

/// How long a running guest may take to accept a connection and to answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// Verifies that the recorded process is the one that runs, and connects to its agent.
pub(super) async fn adopt(shared: &Shared, spec: &MachineSpec, record: &MachineRecord) -> Result<Machine, AdoptError> {
    let id = spec.id;
    let host = |operation| move |source| AdoptError::Host { id, operation, source };
    let readable = record.format == MachineRecord::FORMAT && record.version <= MachineRecord::VERSION;
    if !readable || record.engine != EngineKind::Usermode {
        let (format, version) = (record.format.clone(), record.version);
        return Err(AdoptError::Record { id, format, version });
    }
    let _lock = shared.lock(id).await;
    let gone = || AdoptError::Gone { id, pid: record.pid };
    if host_boot_id().map_err(host("reading the host's boot id"))? != record.boot_id {
        return Err(gone());
    }
    let opened = Process::open(record.pid, record.start_time).map_err(host("looking for the guest's kernel"))?;
    let process = opened.ok_or_else(gone)?;
    let group = adopted_group(shared, record).await;
    let console = match Console::of_process(record.pid) {
        Some(console) => console,
        None => Console::create().map_err(host("opening the console"))?,
    };
    let watched = process::watch(process, console, group, Some(spec.console_log()));
    let exit = watched.map_err(host("watching the guest's kernel"))?;
    shared.set_watched(id, exit.clone());
    let mut ended = exit.clone();
    let answered = tokio::select! {
        biased;
        _ = ended.wait_for(Option::is_some) => return Err(gone()),
        answered = connect(spec) => answered,
    };
    match answered {
        Ok(agent) => Ok(Machine::new(record.clone(), agent, None, exit)),
        Err(ClientError::Deadline { .. }) => Err(AdoptError::Silent { id, deadline: DEADLINE }),
        Err(source) => Err(AdoptError::Agent { id, source }),
    }
}

async fn connect(spec: &MachineSpec) -> Result<Client, ClientError> {
    let agent = Client::connect(&spec.socket(), agent::Options::default(), DEADLINE).await?;
    // Again: the host's clock may have moved, and fresh entropy never hurts.
    tell(&agent.deadline(DEADLINE), spec, Role::default()).await?;
    Ok(agent)
}

/// The recorded cgroup, which a service in another place of the hierarchy would not find by itself.
async fn adopted_group(shared: &Shared, record: &MachineRecord) -> Group {
    let version = shared.layout().await.map(|layout| layout.version);
    group_of_record(record, version.unwrap_or(hutch_jail::cgroup::Version::V2))
}
