//! The meter: one task that looks at all machines.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hutch_engine::Machine;
use hutch_units::SandboxId;
use tokio::task::AbortHandle;

use super::Counter;
use crate::clock::Moment;
use crate::core::Core;
use crate::idle::{self, Decision, Seen, Window, Work};
use crate::lifecycle::State;
use crate::owner::{Command, Handle};
use crate::store::{Reading, StoreError, UsageKind, query};

/// How often processor time is read.
const SAMPLE: Duration = Duration::from_secs(5);
/// How often what was read is written down.
const CHECKPOINT: Duration = Duration::from_secs(10);
/// How old a checkpoint may be when somebody asks for the usage.
const FRESH: Duration = Duration::from_millis(500);

/// What is known of the sandboxes' work.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    sandboxes: HashMap<SandboxId, Metered>,
    sampled_at: Option<Moment>,
    written_at: Option<Moment>,
}

/// A sandbox that is looked at.
#[derive(Debug)]
struct Metered {
    /// The machine that `counter` counts for; nothing when it is paused.
    machine: Weak<Machine>,
    counter: Option<Counter>,
    window: Window,
    kind: UsageKind,
    /// Whether its disk is measured in this state.
    is_measured: bool,
    /// What passes on what the guest asks for.
    watch: Option<AbortHandle>,
}

impl Meter {
    /// What is known of a sandbox's own work.
    pub(crate) fn work(&self, id: SandboxId) -> Work {
        self.books().sandboxes.get(&id).map_or(Work::Unknown, |metered| metered.window.work())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn is_due(last: &mut Option<Moment>, span: Duration, now: Moment) -> bool {
        // A clock that was put back is no reason to wait.
        let is_due = last.is_none_or(|last| last.after(span) <= now || last > now);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Looks at all sandboxes: who came and who went, who works, and who is due. Called every second.
pub(crate) async fn look(core: &Arc<Core>) -> Result<(), StoreError> {
    let owners = core.registry.all();
    let now = core.clock.now();
    let has_new = follow(core, &owners, now);
    let is_due = Books::is_due(&mut core.meter.books().written_at, CHECKPOINT, now);
    if is_due || has_new {
        checkpoint(core, &owners, is_due).await?;
    }
    for owner in &owners {
        let row = owner.snapshot().row;
        let seen =
            Seen { last: owner.activity.last(), running: owner.activity.running(), work: core.meter.work(row.id) };
        if idle::decide(&row, seen, now) != Decision::Leave {
            // The owner decides anew. A full queue, or an owner that just ended, is looked at again in the next round.
            drop(owner.commands.try_send(Command::Due));
        }
    }
    Ok(())
}

/// Brings the ledger up to now, for somebody who asks.
pub(crate) async fn refresh(core: &Arc<Core>) -> Result<(), StoreError> {
    let now = core.clock.now();
    if !Books::is_due(&mut core.meter.books().written_at, FRESH, now) {
        return Ok(());
    }
    let owners = core.registry.all();
    follow(core, &owners, now);
    checkpoint(core, &owners, false).await
}

/// Writes down what a machine with these cgroups has used, for the last time.
pub(crate) async fn last_reading(core: &Core, id: SandboxId, cgroups: &[PathBuf]) -> Result<(), StoreError> {
    let Some(cpu_us) = Counter::open(cgroups).and_then(|counter| counter.read()) else { return Ok(()) };
    let id = id.to_string();
    core.store.note("note a last reading", move |db| query::last_reading(db, &id, cpu_us)).await
}

/// Takes in who came, lets go of who went, and reads the processor time of all when it is time. Whether any came.
fn follow(core: &Arc<Core>, owners: &[Handle], now: Moment) -> bool {
    let mut books = core.meter.books();
    let is_due = Books::is_due(&mut books.sampled_at, SAMPLE, now);
    let mut has_new = false;
    let mut living = HashSet::with_capacity(owners.len());
    for owner in owners {
        let snapshot = owner.snapshot();
        let kind = match snapshot.row.state {
            State::Running if snapshot.machine.is_some() => UsageKind::Active,
            State::Paused => UsageKind::Paused,
            _ => continue,
        };
        living.insert(owner.id);
        let machine = snapshot.machine.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let metered = books.sandboxes.get(&owner.id);
        if metered.is_none_or(|metered| metered.kind != kind || !metered.machine.ptr_eq(&machine)) {
            let metered = Metered {
                counter: snapshot.machine.as_ref().and_then(|machine| Counter::open(machine.cgroups())),
                window: Window::default(),
                kind,
                is_measured: false,
                watch: snapshot.machine.as_ref().map(|machine| {
                    tokio::spawn(idle::watch(Arc::clone(core), owner.id, machine.agent.clone())).abort_handle()
                }),
                machine,
            };
            read(books.sandboxes.entry(owner.id).insert_entry(metered).get_mut(), owner, now);
            has_new = true;
        } else if is_due && let Some(metered) = books.sandboxes.get_mut(&owner.id) {
            read(metered, owner, now);
        }
    }
    books.sandboxes.retain(|id, _| living.contains(id));
    has_new
}

/// Reads a machine's processor time. One that works is active.
fn read(metered: &mut Metered, owner: &Handle, now: Moment) {
    if let Some(cpu_us) = metered.counter.as_ref().and_then(Counter::read) {
        metered.window.add(now, cpu_us);
    }
    if metered.window.work() == Work::Busy || owner.activity.running() > 0 {
        owner.activity.touch(now);
    }
}

/// Writes down what all machines have used, and what their disks take: of those that run each time when
/// `measures_all`, of those that are new in their state in any case.
async fn checkpoint(core: &Arc<Core>, owners: &[Handle], measures_all: bool) -> Result<(), StoreError> {
    let now = core.clock.now();
    let mut readings = Vec::with_capacity(owners.len());
    let mut disks = Vec::new();
    {
        let mut books = core.meter.books();
        for (id, metered) in &mut books.sandboxes {
            let cpu_us = metered.counter.as_ref().and_then(Counter::read);
            if !metered.is_measured || (measures_all && metered.kind == UsageKind::Active) {
                metered.is_measured = true;
                disks.push((readings.len(), core.data.sandbox(*id)));
            }
            readings.push(Reading { sandbox: *id, kind: metered.kind, at: now, cpu_us, disk_kib: None });
        }
    }
    let measured = tokio::task::spawn_blocking(move || {
        disks.into_iter().map(|(position, directory)| (position, kibibytes(&directory))).collect::<Vec<_>>()
    });
    for (position, kib) in measured.await.unwrap_or_default() {
        readings[position].disk_kib = Some(kib);
    }
    if readings.is_empty() {
        return Ok(());
    }
    core.store.note("write a checkpoint", move |db| query::checkpoint(db, &readings)).await
}

/// What the files of a directory, and of those in it, take on the host's disk.
fn kibibytes(directory: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => kibibytes(&entry.path()),
        Ok(metadata) => metadata.blocks() / 2,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
