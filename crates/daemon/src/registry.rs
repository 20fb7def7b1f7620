//! The sandboxes that have an owner task: those that run or are on their way somewhere.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hutch_units::SandboxId;
use tokio::sync::watch;

use crate::owner::Handle;

/// Handles by id.
#[derive(Debug)]
pub(crate) struct Registry {
    handles: Mutex<HashMap<SandboxId, Handle>>,
    count: watch::Sender<usize>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self { handles: Mutex::default(), count: watch::Sender::new(0) }
    }

    /// The owner of this sandbox.
    pub(crate) fn find(&self, id: SandboxId) -> Option<Handle> {
        self.lock().get(&id).cloned()
    }

    /// Every owner.
    pub(crate) fn all(&self) -> Vec<Handle> {
        self.lock().values().cloned().collect()
    }

    /// The owner of this sandbox, made by `make` if there is none. `make` must only put things together: it runs
    /// under the lock, which is what keeps a sandbox from having two owners.
    pub(crate) fn find_or_insert(&self, id: SandboxId, make: impl FnOnce() -> Handle) -> Handle {
        let mut handles = self.lock();
        let handle = handles.entry(id).or_insert_with(make).clone();
        self.count.send_replace(handles.len());
        handle
    }

    /// Takes an owner that has ended out.
    pub(crate) fn remove(&self, id: SandboxId) {
        let mut handles = self.lock();
        handles.remove(&id);
        self.count.send_replace(handles.len());
    }

    /// Completes when there is no owner left.
    pub(crate) async fn emptied(&self) {
        let mut count = self.count.subscribe();
        // The sender lives in `self`, so that the wait can only end by the value.
        drop(count.wait_for(|count| *count == 0).await);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
