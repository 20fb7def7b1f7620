//! What is due: an end that was set, or the pause or end of what is idle.

use hutch_engine::MachineRecord;

use super::task::{Next, Task};
use crate::idle::{self, Decision, Seen};
use crate::lifecycle::State;
use crate::metering;
use crate::metrics::Count;
use crate::report::chain;

impl Task {
    /// Decides with what is so now: since somebody thought that something is due, all may have changed.
    pub(super) fn due(&mut self) -> Option<Next> {
        let activity = self.core.registry.find(self.row.id)?.activity;
        let seen = Seen { last: activity.last(), running: activity.running(), work: self.core.meter.work(self.row.id) };
        match idle::decide(&self.row, seen, self.core.clock.now()) {
            Decision::Pause(cause) if self.row.state == State::Running && self.machine.is_some() => {
                self.core.metrics.count(Count::IdlePaused);
                Some(Next::Pause { cause })
            }
            Decision::Leave | Decision::Pause(_) => None,
            Decision::Destroy(cause) => {
                self.core.metrics.count(Count::IdleDestroyed);
                Some(Next::Destroy { cause })
            }
        }
    }

    /// Writes down what the machine has used, before the count of it goes.
    pub(super) async fn last_reading(&self, record: Option<&MachineRecord>) {
        // A machine that is being started, or was and failed, is nobody's use.
        let is_its_own = self.machine.is_some() || !matches!(self.row.state, State::Creating | State::Resuming);
        if let (Some(record), true) = (record, is_its_own)
            && let Err(error) = metering::last_reading(&self.core, self.row.id, &record.cgroups).await
        {
            tracing::error!(error = chain(&error), "the last reading of a machine's use cannot be stored");
        }
    }
}
