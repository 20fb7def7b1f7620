//! Removing whatever there is of a machine, from every partial state.

use std::path::Path;
use std::time::{Duration, Instant};

use hutch_jail::cgroup::{Controller, Directory, Group, GroupError, Version};
use hutch_units::SandboxId;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::process::{Process, start_time_of};
use super::user_mode::{Shared, blocking, remove_file};
use crate::engine::DestroyError;
use crate::machine::{MachineRecord, MachineSpec, host_boot_id};

/// How long killed processes may take to end, and a cgroup to be removable.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// Kills, waits, removes. The caller holds the sandbox's lock.
pub(super) async fn teardown(
    shared: &Shared,
    spec: &MachineSpec,
    record: Option<&MachineRecord>,
) -> Result<(), DestroyError> {
    let id = spec.id;
    let groups = groups(shared, id, record).await;
    let recorded = record.filter(|record| host_boot_id().is_ok_and(|boot| boot == record.boot_id));
    let recorded = recorded.map(|record| (record.pid, record.start_time));
    // The status of a watched kernel is the watcher's to take.
    let watched = shared.watched(id);
    let take_status = watched.is_none();
    let killed = {
        let groups = groups.clone();
        blocking(move || kill_all(id, &groups, recorded, take_status)).await
    };
    killed?;
    if let Some(mut exit) = watched {
        // It writes the console's log, which must not come after its removal below.
        tokio::time::timeout(DEADLINE, exit.wait_for(Option::is_some)).await.ok();
        shared.forget(id);
    }
    let files = [spec.socket(), spec.control_socket(), spec.console_log()];
    blocking(move || {
        for group in &groups {
            remove_group(group).map_err(|error| DestroyError::Remove { id, path: error.path, source: error.source })?;
        }
        for path in files {
            remove_file(&path).map_err(|source| DestroyError::Remove { id, path, source })?;
        }
        Ok(())
    })
    .await
}

/// The cgroup where it would be made now, and where the record says it was made.
async fn groups(shared: &Shared, id: SandboxId, record: Option<&MachineRecord>) -> Vec<Group> {
    // Without usable cgroups nothing could have been started here.
    let Ok(layout) = shared.layout().await else { return Vec::new() };
    let current = layout.group(&shared.scope, &id.to_string());
    let recorded = record.map(|record| group_of_record(record, layout.version));
    let elsewhere = recorded.filter(|recorded| {
        recorded.directories.iter().any(|one| !current.directories.iter().any(|other| one.path == other.path))
    });
    [current].into_iter().chain(elsewhere).collect()
}

/// A record names directories; which is for what shows in their paths only with version 1.
pub(super) fn group_of_record(record: &MachineRecord, version: Version) -> Group {
    let directory = |path: &std::path::PathBuf| Directory {
        // Above `hutch/<scope>/<sandbox>`.
        anchor: path.ancestors().nth(3).unwrap_or(path).to_owned(),
        controllers: if path.join(memory_file(version)).exists() { vec![Controller::Memory] } else { Vec::new() },
        path: path.clone(),
    };
    Group { version, directories: record.cgroups.iter().map(directory).collect() }
}

fn memory_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.oom_control",
        Version::V2 => "memory.events",
    }
}

/// Kills every process of these cgroups, and the recorded one, until none is left.
fn kill_all(
    id: SandboxId,
    groups: &[Group],
    recorded: Option<(u32, u64)>,
    take_status: bool,
) -> Result<(), DestroyError> {
    let host = |operation| move |source| DestroyError::Host { id, operation, source };
    let until = Instant::now() + DEADLINE;
    let mut recorded = recorded;
    loop {
        let mut held = hold_members(groups).map_err(|error| host("looking for processes")(error.source))?;
        if let Some((pid, start_time)) = recorded.take() {
            held.extend(Process::open(pid, start_time).map_err(host("looking for the guest's kernel"))?);
        }
        if held.is_empty() {
            return Ok(());
        }
        for process in &held {
            process.kill().map_err(host("killing a process"))?;
        }
        wait_for_ends(&held, until).map_err(host("waiting for processes to end"))?;
        if take_status {
            for process in &held {
                process.reap();
            }
        }
        if Instant::now() >= until {
            return Err(DestroyError::Processes { id, count: held.len(), deadline: DEADLINE });
        }
    }
}

/// Holds the processes that are in these cgroups. An id may pass to an unrelated process between being read and being
/// held, so only those count that are still in there afterwards.
fn hold_members(groups: &[Group]) -> Result<Vec<Process>, GroupError> {
    let members = || -> Result<Vec<u32>, GroupError> {
        let each: Result<Vec<Vec<u32>>, GroupError> = groups.iter().map(Group::processes).collect();
        Ok(each?.concat())
    };
    let mut held = Vec::new();
    for pid in members()? {
        let opened = Process::open_any(pid);
        let error = |source| GroupError { operation: "holding", path: format!("/proc/{pid}").into(), source };
        held.extend(opened.map_err(error)?.map(|process| (pid, process)));
    }
    let still = members()?;
    Ok(held.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, process)| process).collect())
}

/// Waits until all have ended, or the time comes.
fn wait_for_ends(processes: &[Process], until: Instant) -> std::io::Result<()> {
    for process in processes {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Removes a cgroup that nobody is in any more. It stays busy for a moment after the last one has ended, and the
/// kernel has no event for that.
pub(super) fn remove_group(group: &Group) -> Result<(), GroupError> {
    let until = Instant::now() + DEADLINE;
    loop {
        match group.remove() {
            Err(error) if error.source.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Kills all processes of one cgroup directory and removes it.
pub(super) fn remove_cgroup_directory(id: SandboxId, path: &Path, version: Version) -> Result<(), DestroyError> {
    let anchor = path.ancestors().nth(3).unwrap_or(path).to_owned();
    let directory = Directory { anchor, path: path.to_owned(), controllers: Vec::new() };
    let group = Group { version, directories: vec![directory] };
    kill_all(id, std::slice::from_ref(&group), None, true)?;
    remove_group(&group).map_err(|error| DestroyError::Remove { id, path: error.path, source: error.source })
}

/// Kills one process and waits for its end.
pub(super) fn remove_process(pid: u32, start_time: u64) -> std::io::Result<()> {
    let Some(process) = Process::open(pid, start_time)? else { return Ok(()) };
    process.kill()?;
    wait_for_ends(std::slice::from_ref(&process), Instant::now() + DEADLINE)?;
    process.reap();
    match start_time_of(pid) {
        Some(now) if now == start_time => Err(std::io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
