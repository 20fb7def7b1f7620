//! What others have of an owner task.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hutch_engine::Machine;
use hutch_units::{SandboxId, SnapshotId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Moment;
use crate::store::{SandboxRow, SnapshotRow};

/// The way to an owner task. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) id: SandboxId,
    pub(crate) account: Arc<str>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    pub(crate) activity: Arc<Activity>,
}

/// A sandbox at a moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// The row, as it is in the store.
    pub(crate) row: Arc<SandboxRow>,
    /// The machine, while it runs and its agent can be reached.
    pub(crate) machine: Option<Arc<Machine>>,
}

/// Where the answer to a command goes: the row once the command was taken on, or why it was not.
pub(crate) type Answer = oneshot::Sender<Result<Arc<SandboxRow>, hutch_api::Error>>;

/// A snapshot that an owner has taken of its sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    /// The key of the template that its memory is stored against.
    pub(crate) template: Option<String>,
    /// How long the sandbox stood still for it; `None` for one that did not run.
    pub(crate) stopped: Option<std::time::Duration>,
}

/// What can be asked of an owner task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take it down. Answers when nothing of it is left on the host.
    Destroy {
        /// Why, for the trail.
        cause: Cow<'static, str>,
        /// Where the answer goes.
        done: oneshot::Sender<()>,
    },
    /// Save it and end its machine. Answers when the row says `pausing`, or at once when it is paused.
    Pause {
        /// Why, for the trail.
        cause: Cow<'static, str>,
        /// Where the answer goes.
        done: Answer,
    },
    /// Bring it back. Answers when the row says `resuming`, or at once when it runs.
    Resume {
        /// Where the answer goes.
        done: Answer,
    },
    /// Take a snapshot of it, whose row is in the store. Answers when the snapshot's files are whole.
    Take {
        /// Which.
        snapshot: SnapshotId,
        /// Whether it becomes the parent of the next one.
        is_named: bool,
        /// Where the answer goes.
        done: oneshot::Sender<Result<Taken, hutch_api::Error>>,
    },
    /// Make it what it was when a snapshot was taken. Answers when the row says `resuming`.
    Restore {
        /// Which.
        snapshot: Box<SnapshotRow>,
        /// Where the answer goes.
        done: Answer,
    },
    /// Look whether its time is over or it is idle, and do what is to be done then.
    Due,
    /// Give it up against its owner's will.
    Evict {
        /// Why, for its owner.
        reason: String,
    },
    /// Change what may change of a sandbox.
    Update {
        /// What to change.
        change: Change,
        /// Where the answer goes: the row after the change is stored, or why it is not.
        done: oneshot::Sender<Result<Arc<SandboxRow>, hutch_api::Error>>,
    },
}

/// A change to a sandbox; `None` leaves a thing as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Change {
    pub(crate) auto_pause_after_seconds: Option<Option<u32>>,
    pub(crate) auto_destroy_after_seconds: Option<Option<u32>>,
    pub(crate) ingress: Option<bool>,
    pub(crate) expires_at: Option<Option<Moment>>,
    pub(crate) labels: Option<BTreeMap<String, String>>,
}

/// What is being done with a sandbox, for those who want to know whether it is idle.
#[derive(Debug)]
pub(crate) struct Activity {
    last: AtomicI64,
    stored: AtomicI64,
    execs: AtomicU64,
}

/// A command that runs, as long as this lives.
#[derive(Debug)]
pub(crate) struct Running(Arc<Activity>);

impl Handle {
    /// The latest snapshot.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshots.borrow().clone()
    }

    /// The first snapshot that fulfils a condition; the last one there was if the task ends before.
    pub(crate) async fn wait_for(&self, condition: impl FnMut(&Snapshot) -> bool) -> Snapshot {
        let mut snapshots = self.snapshots.clone();
        match snapshots.wait_for(condition).await {
            Ok(snapshot) => return snapshot.clone(),
            Err(_ended) => {}
        }
        self.snapshot()
    }
}

impl Activity {
    pub(crate) fn new(last: Moment) -> Self {
        Self { last: AtomicI64::new(last.0), stored: AtomicI64::new(last.0), execs: AtomicU64::new(0) }
    }

    /// Something was done.
    pub(crate) fn touch(&self, now: Moment) {
        self.last.fetch_max(now.0, Ordering::Relaxed);
    }

    /// A command begins; it counts as activity until the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.execs.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// When something was last done.
    pub(crate) fn last(&self) -> Moment {
        Moment(self.last.load(Ordering::Relaxed))
    }

    /// How many commands run.
    pub(crate) fn running(&self) -> u64 {
        self.execs.load(Ordering::Relaxed)
    }

    /// When something was last done, if that is not what was returned here before. A command that runs counts as
    /// something that is being done now.
    pub(crate) fn to_store(&self, now: Moment) -> Option<Moment> {
        if self.running() > 0 {
            self.touch(now);
        }
        let last = self.last.load(Ordering::Relaxed);
        (self.stored.swap(last, Ordering::Relaxed) != last).then_some(Moment(last))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.execs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_command_is_activity() {
        let activity = Arc::new(Activity::new(Moment(1)));
        assert_eq!(activity.to_store(Moment(5)), None);
        activity.touch(Moment(6));
        activity.touch(Moment(4));
        assert_eq!(activity.to_store(Moment(7)), Some(Moment(6)));
        let running = activity.begin();
        assert_eq!(activity.to_store(Moment(9)), Some(Moment(9)));
        drop(running);
        assert_eq!(activity.to_store(Moment(11)), None);
    }
}
