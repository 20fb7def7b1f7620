//! What all parts of the daemon share.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hutch_engine::{Engine, MachineSpec};
use hutch_units::Mebibytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, watch};

use crate::capacity::Capacity;
use crate::clock::Clock;
use crate::config::Preparation;
use crate::data_directory::DataDirectory;
use crate::doctor::Prerequisites;
use crate::images::Images;
use crate::metering::Meter;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::registry::Registry;
use crate::store::{SandboxRow, SlotRow, Store, TemplateRow};
use crate::templates::Templates;

/// The lowest host user id that any sandbox runs under. Far above what a host's own users and the usual ranges of
/// subordinate ids have.
const LOWEST_UID: u32 = 0x4000_0000;

/// The host user id of the sandbox that holds a slot. Each data directory has one of 2^13 ranges of 2^16 ids, by the
/// hash of its path: two services on one host do not give out the same ids, and the highest is below 2^31.
fn host_uid(data: &Path, slot: u32) -> u32 {
    let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
    let range = u32::from(u16::from_be_bytes([digest[0], digest[1]])) & 0x1fff;
    LOWEST_UID + (range << 16) + (slot & 0xffff)
}

/// What does not change while the daemon runs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// This host's id.
    pub(crate) host_id: String,
    /// The region that requests may name.
    pub(crate) region: String,
    /// How long ended things are remembered.
    pub(crate) retention: Retention,
    /// What is prepared for creates to come.
    pub(crate) preparation: Preparation,
    /// How many sandboxes are started at the same time; others wait for their turn.
    pub(crate) concurrent_creates: usize,
    /// How long a create waits for its turn.
    pub(crate) create_patience: Duration,
    /// How many machines are adopted at the same time.
    pub(crate) concurrent_adoptions: usize,
    /// How long a request to destroy waits before it answers `destroying`.
    pub(crate) destroy_patience: Duration,
}

/// How long ended things are remembered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retention {
    /// Rows of destroyed sandboxes.
    pub(crate) destroyed: Duration,
    /// Rows of failed sandboxes.
    pub(crate) failed: Duration,
    /// Idempotency keys.
    pub(crate) receipts: Duration,
    /// The trail of transitions.
    pub(crate) transitions: Duration,
}

/// What all parts of the daemon share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) data: DataDirectory,
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) images: Images,
    pub(crate) templates: Templates,
    pub(crate) pool: Pool,
    pub(crate) capacity: Capacity,
    pub(crate) creates: Arc<Semaphore>,
    pub(crate) adoptions: Semaphore,
    pub(crate) registry: Registry,
    pub(crate) meter: Meter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    /// What the engine needs and the host lacks.
    pub(crate) prerequisites: Prerequisites,
    /// Why sandboxes cannot be created, while the daemon finds its sandboxes again after a start.
    pub(crate) recovering: watch::Sender<bool>,
    /// Becomes true when the daemon stops: owners let go of their machines and end.
    pub(crate) stopping: watch::Sender<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            host_id: "host".to_owned(),
            region: "local".to_owned(),
            retention: Retention::default(),
            preparation: Preparation::default(),
            concurrent_creates: (2 * processors).max(4),
            create_patience: Duration::from_secs(60),
            concurrent_adoptions: 32,
            destroy_patience: Duration::from_secs(20),
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Self { destroyed: hours(1), failed: hours(24), receipts: hours(24), transitions: hours(24 * 30) }
    }
}

impl Core {
    /// What the machine of a sandbox is made from. The same for the same row at all times, so that a machine that
    /// was started by an earlier run of the daemon can be found and removed by its row alone.
    pub(crate) fn machine_spec(&self, row: &SandboxRow) -> MachineSpec {
        MachineSpec {
            id: row.id,
            state_dir: self.data.sandbox(row.id),
            base_image: row.spec.base_image.clone(),
            disk: self.data.disk(row.id),
            memory: Mebibytes(row.spec.memory_mib),
            vcpu: row.spec.vcpu,
            cpu_quota_percent: row.spec.cpu_quota_percent,
            host_uid: host_uid(self.data.root(), row.slot.unwrap_or(0)),
            hostname: row.name.as_str().to_owned(),
        }
    }

    /// A machine that waits for a create. The same as that of the sandbox it becomes, but for the name.
    pub(crate) fn waiting_machine(&self, row: &SlotRow) -> MachineSpec {
        MachineSpec {
            id: row.id,
            state_dir: self.data.sandbox(row.id),
            base_image: row.base_image.clone(),
            disk: self.data.disk(row.id),
            memory: Mebibytes(row.memory_mib),
            vcpu: row.vcpu,
            cpu_quota_percent: row.cpu_quota_percent,
            host_uid: host_uid(self.data.root(), row.slot),
            hostname: "prepared".to_owned(),
        }
    }

    /// The machine that a template is saved from, while there is one.
    pub(crate) fn template_machine(&self, row: &TemplateRow) -> Option<MachineSpec> {
        let id = row.id?;
        Some(MachineSpec {
            id,
            state_dir: self.data.sandbox(id),
            base_image: row.base_image.clone(),
            disk: self.data.disk(id),
            memory: Mebibytes(row.memory_mib),
            vcpu: row.vcpu,
            cpu_quota_percent: None,
            host_uid: host_uid(self.data.root(), row.slot.unwrap_or(0)),
            hostname: "template".to_owned(),
        })
    }

    /// Completes when no create was under way for this long, or when patience is at its end.
    pub(crate) async fn quiet(&self, calm: Duration, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut quiet_since = None;
        while Instant::now() < deadline {
            if self.creates.available_permits() < self.settings.concurrent_creates {
                quiet_since = None;
            } else if quiet_since.get_or_insert_with(Instant::now).elapsed() >= calm {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Completes when the daemon stops.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives in `self`, so that the wait can only end by the value.
        drop(stopping.wait_for(|stopping| *stopping).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_with_different_data_give_out_different_uids() {
        let (one, other) = (Path::new("/var/lib/hutch"), Path::new("/srv/hutch"));
        assert_ne!(host_uid(one, 0), host_uid(other, 0));
        assert_eq!(host_uid(one, 7), host_uid(one, 0) + 7);
        assert!((LOWEST_UID..1 << 31).contains(&host_uid(other, 0xffff)));
    }
}
