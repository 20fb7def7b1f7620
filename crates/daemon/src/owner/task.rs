//! The task itself: what leads to what.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hutch_api::{Error, ErrorKind};
use hutch_engine::Machine;
use hutch_engine::machine::{Exit, ExitReason};
use hutch_units::{SandboxId, SnapshotId};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tracing::Instrument as _;

use super::handle::{Activity, Answer, Change, Command, Handle, Snapshot};
use super::plan::Plan;
use crate::capacity::Place;
use crate::core::Core;
use crate::lifecycle::{Event, State};
use crate::metrics::Count;
use crate::store::{SandboxRow, SnapshotRow, StoreError, TransitionRow, query};

/// How long after the loss of its connection a machine is given to be seen dead.
const LAST_BREATH: Duration = Duration::from_millis(250);

/// What an owner task begins with.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// The row, which is in the store.
    pub(crate) row: SandboxRow,
    /// What to do first.
    pub(crate) plan: Plan,
    /// Its share of the capacity.
    pub(crate) place: Option<Place>,
    /// When it was asked for, for how long it took.
    pub(crate) since: Instant,
    /// Its turn among the creates, given back when it runs.
    pub(crate) turn: Option<OwnedSemaphorePermit>,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Connect to the machine again.
    Adopt,
    /// Wait for commands, and for the machine to end.
    Serve,
    /// Wait for commands; there is no machine.
    Hold,
    /// It was asked to go.
    Destroy {
        /// By whom, for the trail.
        cause: Cow<'static, str>,
    },
    /// Save it and end its machine.
    Pause {
        /// Why, for the trail.
        cause: Cow<'static, str>,
    },
    /// Find out how far a pause came that the daemon's end broke off.
    FinishPause,
    /// Bring it back.
    Resume,
    /// Find out how far a resume came that the daemon's end broke off.
    FinishResume,
    /// Take a snapshot of it.
    Take {
        /// Which.
        snapshot: SnapshotId,
        /// Whether it becomes the parent of the next one.
        is_named: bool,
        /// Where the answer goes.
        done: oneshot::Sender<Result<super::Taken, Error>>,
    },
    /// Put a snapshot in its place.
    Restore {
        /// Which.
        snapshot: Box<SnapshotRow>,
        /// Where the answer goes.
        done: Answer,
    },
    /// It went against its owner's will.
    Fail {
        /// Why, for its owner.
        reason: String,
    },
    /// Take everything it has on the host back.
    Clean,
    /// The task has nothing more to do.
    End,
}

pub(super) struct Task {
    pub(super) core: Arc<Core>,
    pub(super) row: SandboxRow,
    pub(super) machine: Option<Arc<Machine>>,
    pub(super) place: Option<Place>,
    pub(super) turn: Option<OwnedSemaphorePermit>,
    pub(super) since: Instant,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) snapshots: watch::Sender<Snapshot>,
    /// Those who wait for it to be gone.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
    /// What was asked for while something else was being done.
    pub(super) postponed: VecDeque<Command>,
    /// Those who asked for the pause, or the return, that is about to begin.
    pub(super) askers: Vec<Answer>,
}

/// Takes the owner out of the registry when its task ends, also by a panic.
struct Registered {
    core: Arc<Core>,
    id: SandboxId,
}

/// The owner of the row's sandbox: the one there is, or a new one that begins with this.
pub(crate) fn spawn(core: &Arc<Core>, beginning: Beginning) -> Handle {
    let id = beginning.row.id;
    core.registry.find_or_insert(id, || {
        let Beginning { row, plan, place, since, turn } = beginning;
        let (sender, commands) = mpsc::channel(64);
        let activity = Arc::new(Activity::new(row.last_activity_at));
        let (snapshots, receiver) = watch::channel(Snapshot { row: Arc::new(row.clone()), machine: None });
        let account = Arc::from(row.account.as_str());
        let span = tracing::info_span!(parent: None, "sandbox", %id);
        let task = Task {
            core: Arc::clone(core),
            row,
            machine: None,
            place,
            turn,
            since,
            commands,
            snapshots,
            waiting: Vec::new(),
            postponed: VecDeque::new(),
            askers: Vec::new(),
        };
        tokio::spawn(task.run(plan).instrument(span));
        Handle { id, account, commands: sender, snapshots: receiver, activity }
    })
}

impl Task {
    async fn run(mut self, plan: Plan) {
        let registered = Registered { core: Arc::clone(&self.core), id: self.row.id };
        let mut next = self.first(plan).await;
        loop {
            next = match next {
                Next::Adopt => self.adopt().await,
                Next::Serve => self.serve().await,
                Next::Hold => self.hold().await,
                Next::Destroy { cause } => self.destroy(cause).await,
                Next::Fail { reason } => self.fail(reason).await,
                Next::Pause { cause } => self.pause(cause).await,
                Next::FinishPause => self.finish_pause().await,
                Next::Resume => self.resume().await,
                Next::FinishResume => self.finish_resume().await,
                Next::Take { snapshot, is_named, done } => self.take(snapshot, is_named, done).await,
                Next::Restore { snapshot, done } => self.restore(*snapshot, done).await,
                Next::Clean => self.clean().await,
                Next::End => break,
            };
        }
        // Out of the registry first: who finds the queue closed then looks again and does not find this owner.
        drop(registered);
    }

    async fn first(&mut self, plan: Plan) -> Next {
        if plan == Plan::Create {
            return if self.row.origin.is_some() { self.begin_from_snapshot().await } else { self.create().await };
        }
        // Between the moment that the row was read and the moment that this became its owner it may have changed.
        let id = self.row.id.to_string();
        match self.core.store.read("read a sandbox", move |db| query::find(db, &id)).await {
            Ok(Some(row)) => self.row = row,
            Ok(None) => return Next::End,
            Err(error) => {
                tracing::error!(error = crate::report::chain(&error), "the row cannot be read");
                return Next::End;
            }
        }
        // What is only kept has no share of the memory.
        if self.row.slot.is_some() && self.place.is_none() && plan != Plan::Hold {
            self.place = Some(self.core.capacity.occupy(hutch_units::Mebibytes(self.row.spec.memory_mib)));
        }
        match plan {
            Plan::Create | Plan::Nothing => Next::End,
            Plan::Adopt => Next::Adopt,
            Plan::Hold => Next::Hold,
            Plan::FinishPause => Next::FinishPause,
            Plan::FinishResume => Next::FinishResume,
            Plan::Undo => Next::Fail { reason: "the service stopped while the sandbox was being made".to_owned() },
            Plan::Destroy if self.row.state == State::Destroyed => Next::End,
            Plan::Destroy => Next::Destroy { cause: "its making or its end was broken off".into() },
            Plan::Clean => Next::Clean,
        }
    }

    /// Waits for commands, for the end of the machine, and for the end of the daemon, which leaves the machine be.
    async fn serve(&mut self) -> Next {
        let Some(machine) = self.machine.clone() else { return Next::Adopt };
        let core = Arc::clone(&self.core);
        let mut exited = std::pin::pin!(machine.exited());
        let mut lost = std::pin::pin!(machine.agent.lost());
        let mut stopped = std::pin::pin!(core.stopped());
        loop {
            tokio::select! {
                biased;
                exit = &mut exited => return Next::Fail { reason: describe(&exit) },
                _ = &mut lost => break,
                command = self.command() => {
                    if let Some(next) = self.obey(command).await {
                        return next;
                    }
                }
                () = &mut stopped => return Next::End,
            }
        }
        // Usually the connection is lost because the machine is.
        if let Ok(exit) = tokio::time::timeout(LAST_BREATH, exited).await {
            return Next::Fail { reason: describe(&exit) };
        }
        tracing::warn!("the connection to the agent was lost although the machine lives");
        self.core.metrics.count(Count::AgentError);
        self.machine = None;
        self.publish();
        Next::Adopt
    }

    async fn hold(&mut self) -> Next {
        if self.row.state == State::Forking {
            self.commit(Event::ForkEnded, Some("the service stopped meanwhile".to_owned())).await;
        }
        let core = Arc::clone(&self.core);
        let mut stopped = std::pin::pin!(core.stopped());
        loop {
            tokio::select! {
                biased;
                command = self.command() => {
                    if let Some(next) = self.obey(command).await {
                        return next;
                    }
                }
                () = &mut stopped => return Next::End,
            }
        }
    }

    /// The next command: what was put off comes first.
    async fn command(&mut self) -> Option<Command> {
        match self.postponed.pop_front() {
            Some(command) => Some(command),
            None => self.commands.recv().await,
        }
    }

    /// Does what is asked; `Some` when that ends what is going on.
    pub(super) async fn obey(&mut self, command: Option<Command>) -> Option<Next> {
        match command {
            Some(Command::Destroy { cause, done }) => {
                self.waiting.push(done);
                Some(Next::Destroy { cause })
            }
            Some(Command::Due) => self.due(),
            // Only a sandbox that runs can be given up; one that is being made will be seen again when it does.
            Some(Command::Evict { reason }) => (self.row.state == State::Running).then_some(Next::Fail { reason }),
            Some(Command::Update { change, done }) => {
                let answer = self.update(change).await;
                // Who asked may have gone away; the change is made all the same.
                drop(done.send(answer));
                None
            }
            Some(command) => self.wish(command).await,
            // The registry holds a sender for as long as the task runs.
            None => Some(Next::End),
        }
    }

    async fn update(&mut self, change: Change) -> Result<Arc<SandboxRow>, Error> {
        let mut row = self.row.clone();
        if let Some(seconds) = change.auto_pause_after_seconds {
            row.auto_pause_after_seconds = seconds;
        }
        if let Some(seconds) = change.auto_destroy_after_seconds {
            row.auto_destroy_after_seconds = seconds;
        }
        if let Some(wanted) = change.ingress {
            row.ingress = wanted;
        }
        if let Some(moment) = change.expires_at {
            row.expires_at = moment;
        }
        let labels = change.labels;
        if let Some(labels) = &labels {
            row.labels.clone_from(labels);
        }
        let stored = row.clone();
        let write = self.core.store.write("change a sandbox", move |db| {
            query::apply(db, &stored, None)?;
            if labels.is_some() { query::replace_labels(db, &stored) } else { Ok(()) }
        });
        write.await.map_err(|error| Error::internal(&error))?;
        self.row = row;
        self.publish();
        Ok(self.snapshots.borrow().row.clone())
    }

    async fn destroy(&mut self, cause: Cow<'static, str>) -> Next {
        self.since = Instant::now();
        self.machine = None;
        self.row.desired = crate::store::Desired::Destroyed;
        tracing::info!(%cause, "destroying");
        self.commit(Event::DestroyAsked, Some(cause.into_owned())).await;
        Next::Clean
    }

    async fn fail(&mut self, reason: String) -> Next {
        if self.row.state == State::Resuming {
            // Its saved machine is still there.
            return self.did_not_come_back(reason).await;
        }
        let was_creating = self.row.state == State::Creating;
        self.machine = None;
        self.turn = None;
        self.row.ended_at = Some(self.core.clock.now());
        self.core.metrics.count(if was_creating { Count::CreateFailed } else { Count::MachineLost });
        tracing::warn!(reason, "the sandbox failed");
        let event = if was_creating { Event::StartFailed } else { Event::Lost };
        self.row.reason = Some(reason.clone());
        self.commit(event, Some(reason)).await;
        Next::Clean
    }

    /// Applies an event: changes the row, writes it, and shows it to others once it is written. While the store
    /// cannot be written this tries again and again, because what happened has happened; then bad news is shown
    /// before it is stored, so that nobody waits in vain.
    pub(super) async fn commit(&mut self, event: Event, reason: Option<String>) {
        let transition = match self.transition(event, reason) {
            Ok(transition) => transition,
            Err(refused) => {
                tracing::error!(%refused, "an event came in a state that does not know it");
                return;
            }
        };
        let mut delay = Duration::from_millis(100);
        while let Err(error) = self.store(Some(transition.clone())).await {
            if matches!(error, StoreError::Closed { .. }) {
                return;
            }
            tracing::error!(error = crate::report::chain(&error), "a state cannot be stored; trying again");
            if self.row.state == State::Failed {
                self.publish();
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(5));
        }
        self.publish();
    }

    /// The row after an event, and the line in the trail.
    pub(super) fn transition(
        &mut self,
        event: Event,
        reason: Option<String>,
    ) -> Result<TransitionRow, crate::lifecycle::Refused> {
        let from = self.row.state;
        self.row.state = from.after(event)?;
        Ok(TransitionRow {
            at: self.core.clock.now(),
            event: event.as_str().to_owned(),
            from: Some(from.as_str().to_owned()),
            to: self.row.state.as_str().to_owned(),
            reason,
        })
    }

    /// Writes the row, the trail and what became of the idempotency key.
    pub(super) async fn store(&self, transition: Option<TransitionRow>) -> Result<(), StoreError> {
        let row = self.row.clone();
        let answer = (row.state == State::Running)
            .then(|| crate::view::created(&row, &self.core.settings))
            .and_then(|created| serde_json::to_string(&created).ok());
        // No machine outlives a loss of power. What is on its way to be paused is lost with it, and of what comes back
        // the disk is left, which it boots from then. But nothing may come back as what it was before a restore.
        let is_passing = matches!(row.state, State::Running | State::Pausing | State::Resuming | State::Forking);
        let is_restored =
            transition.as_ref().is_some_and(|transition| transition.event == Event::RestoreAsked.as_str());
        let is_lasting = !is_passing || is_restored;
        let work = move |db: &rusqlite::Connection| {
            query::apply(db, &row, transition.as_ref())?;
            let id = row.id.to_string();
            match answer {
                Some(answer) => query::settle(db, &id, &answer),
                None if row.state.is_terminal() => query::release(db, &id),
                None => Ok(()),
            }
        };
        match is_lasting {
            true => self.core.store.write("store a sandbox", work).await,
            false => self.core.store.note("store a sandbox", work).await,
        }
    }

    /// Shows others the row and, while it can be used, the machine.
    pub(super) fn publish(&self) {
        let machine = self.machine.clone().filter(|_| self.row.state == State::Running);
        self.snapshots.send_replace(Snapshot { row: Arc::new(self.row.clone()), machine });
    }

    /// Answers those who asked for what has now begun.
    pub(super) fn answer(&mut self, result: &Result<(), Error>) {
        let row = self.snapshots.borrow().row.clone();
        for done in self.askers.drain(..) {
            // Who asked may have gone away.
            drop(done.send(result.clone().map(|()| row.clone())));
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.core.registry.remove(self.id);
    }
}

impl Drop for Task {
    /// Tells those who still wait in the queue; they look the sandbox up again.
    fn drop(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Update { done, .. } = command {
                drop(done.send(Err(ended())));
            }
        }
    }
}

/// The answer to a change that came too late.
pub(crate) fn ended() -> Error {
    Error::new(ErrorKind::WrongState, "the sandbox has ended")
}

/// How a machine ended, for the owner of the sandbox.
fn describe(exit: &Exit) -> String {
    // The guest wrote it, so it is only shown quoted, and only to the operator.
    tracing::debug!(console = ?exit.console, "the last words of the guest");
    match exit.reason {
        ExitReason::Exited { status: 0 } => "the guest shut itself down".to_owned(),
        ExitReason::Exited { status } => format!("the guest's kernel ended with status {status}"),
        ExitReason::Signalled { signal } => format!("the guest's kernel was killed by signal {signal}"),
        ExitReason::OutOfMemory => "the guest's kernel was killed: it went over its memory on the host".to_owned(),
        ExitReason::Unknown => "the guest's kernel is gone".to_owned(),
    }
}
