//! The machines that wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hutch_engine::Prepared;
use hutch_units::SandboxId;
use tokio::sync::Notify;

use super::demand::Demand;
use crate::store::SlotRow;

/// What tells the machines of one kind from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    /// The key of the template.
    pub(crate) template: String,
    /// The image's file.
    pub(crate) base_image: std::path::PathBuf,
    /// Guest memory in MiB.
    pub(crate) memory_mib: u32,
    /// Virtual processors.
    pub(crate) vcpu: u32,
    /// Upper bound of processor time in per cent of one processor.
    pub(crate) cpu_quota_percent: Option<u32>,
}

/// A machine that waits. Whoever takes it out of the pool makes a sandbox of it, puts it back, or gives it up.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its row, which is in the store.
    pub(crate) row: SlotRow,
    /// The machine.
    pub(crate) prepared: Prepared,
}

/// The machines that wait, and those that are on their way out.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    kinds: HashMap<Kind, Shelf>,
    /// Machines of sandboxes that are recorded and whose owners come to fetch them.
    claimed: HashMap<SandboxId, Prepared>,
    leaving: Vec<Waiting>,
}

#[derive(Debug)]
struct Shelf {
    demand: Demand,
    waiting: Vec<Waiting>,
}

/// What to do next to have as many as should be.
#[derive(Debug)]
pub(super) enum Step {
    /// Prepare one more.
    Prepare(Kind),
    /// Remove this one, which has left the pool.
    Remove(Box<Waiting>),
}

/// How many machines may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    pub(super) of_a_kind: usize,
    pub(super) in_all: usize,
}

impl Pool {
    /// Takes a machine of a kind out, which counts as demand whether there is one or not.
    pub(crate) fn take(&self, kind: &Kind) -> Option<Waiting> {
        let mut state = self.state();
        state.shelf(kind).demand.note(Instant::now());
        while let Some(waiting) = state.shelf(kind).waiting.pop() {
            if !waiting.prepared.has_exited() {
                return Some(waiting);
            }
            state.leaving.push(waiting);
        }
        None
    }

    /// Has one of a kind wait although nobody has asked yet.
    pub(crate) fn expect(&self, kind: &Kind) {
        self.state().shelf(kind);
        self.wake();
    }

    /// Puts a machine back that was not used after all.
    pub(crate) fn put(&self, kind: &Kind, waiting: Waiting) {
        self.state().shelf(kind).waiting.push(waiting);
    }

    /// Keeps the machine of a sandbox that is recorded until its owner comes.
    pub(crate) fn hold(&self, id: SandboxId, prepared: Prepared) {
        self.state().claimed.insert(id, prepared);
    }

    /// The machine of a sandbox that took one over.
    pub(crate) fn claim(&self, id: SandboxId) -> Option<Prepared> {
        self.state().claimed.remove(&id)
    }

    /// Gives the machines of a template up, and prepares no more of them.
    pub(crate) fn forget(&self, template: &str) {
        let mut state = self.state();
        let State { kinds, leaving, .. } = &mut *state;
        kinds.retain(|kind, shelf| {
            let stays = kind.template != template;
            if !stays {
                leaving.append(&mut shelf.waiting);
            }
            stays
        });
        drop(state);
        self.wake();
    }

    /// How many wait.
    pub(crate) fn ready(&self) -> usize {
        self.state().kinds.values().map(|shelf| shelf.waiting.len()).sum()
    }

    /// Has it looked at whether there are as many as should be.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Notes that none of a kind could be prepared.
    pub(super) fn rest(&self, kind: &Kind) {
        self.state().shelf(kind).demand.rest(Instant::now());
    }

    /// What to do next; `None` when all is as it should be. `usable` says which templates can be used.
    pub(super) fn next(&self, most: Most, usable: impl Fn(&str) -> bool) -> Option<Step> {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(leaving) = state.leaving.pop() {
            return Some(Step::Remove(Box::new(leaving)));
        }
        let all: usize = state.kinds.values().map(|shelf| shelf.waiting.len()).sum();
        for shelf in state.kinds.values_mut() {
            let target = shelf.demand.target(now, most.of_a_kind);
            let surplus = shelf.waiting.iter().position(|waiting| waiting.prepared.has_exited());
            if let Some(index) = surplus.or((shelf.waiting.len() > target).then_some(0)) {
                return Some(Step::Remove(Box::new(shelf.waiting.remove(index))));
            }
        }
        state.kinds.retain(|_, shelf| !shelf.waiting.is_empty() || !shelf.demand.is_over(now));
        if all >= most.in_all {
            return None;
        }
        let short = state.kinds.iter_mut().filter_map(|(kind, shelf)| {
            let missing = shelf.demand.target(now, most.of_a_kind).saturating_sub(shelf.waiting.len());
            (missing > 0 && usable(&kind.template)).then(|| (shelf.waiting.len(), kind.clone()))
        });
        // The kind of which the fewest wait comes first.
        short.min_by_key(|(waiting, _)| *waiting).map(|(_, kind)| Step::Prepare(kind))
    }

    /// Takes all out, for the end of the daemon.
    pub(super) fn drain(&self) -> Vec<Waiting> {
        let mut state = self.state();
        let mut all = std::mem::take(&mut state.leaving);
        all.extend(std::mem::take(&mut state.kinds).into_values().flat_map(|shelf| shelf.waiting));
        all
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn shelf(&mut self, kind: &Kind) -> &mut Shelf {
        let new = || Shelf { demand: Demand::new(Instant::now()), waiting: Vec::new() };
        self.kinds.entry(kind.clone()).or_insert_with(new)
    }
}
