//! What a guest is told before anything of the user's runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use hutch_protocol::machine::{Configure, SetClock};

use super::plan;
use crate::agent::{Client, ClientError};
use crate::machine::MachineSpec;

/// Bytes of the host's entropy that a guest begins with.
const ENTROPY: usize = 256;
/// A time that took longer to be heard is told again, this often.
const CLOCK_HEARD: Duration = Duration::from_millis(20);
const CLOCK_ATTEMPTS: u32 = 3;

/// What becomes of a guest that is told its name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Role {
    /// Commands of the lost connection go on.
    pub(super) continues: bool,
    /// It gets a machine id of its own.
    pub(super) renamed: bool,
    /// Its clock is known to be right.
    pub(super) timed: bool,
}

/// Tells the guest all that it must know before anything of the user's runs.
pub(super) async fn tell(agent: &Client, spec: &MachineSpec, role: Role) -> Result<(), ClientError> {
    let mut told = Instant::now();
    agent.configure(&configure(spec, role)).await?;
    let mut attempts = 0;
    while !role.timed && told.elapsed() > CLOCK_HEARD && attempts < CLOCK_ATTEMPTS {
        told = Instant::now();
        agent.set_clock(&SetClock { wall_ns: wall_ns().unwrap_or_default() }).await?;
        attempts += 1;
    }
    Ok(())
}

fn wall_ns() -> Option<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).ok()
}

fn configure(spec: &MachineSpec, role: Role) -> Configure {
    let mut entropy = vec![0; ENTROPY];
    fill_at_random(&mut entropy);
    Configure {
        hostname: spec.hostname.clone(),
        wall_ns: if role.timed { None } else { wall_ns() },
        entropy,
        env: BTreeMap::new(),
        memory_reserve_bytes: None,
        processes_max: Some(u64::from(plan::guest_processes(spec.memory))),
        continues: role.continues,
        machine_id: role.renamed.then(machine_id),
    }
}

fn fill_at_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        // Blocks until the host's own generator is seeded, which it is long before any service runs.
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
}

/// A new machine id, as machine-id(5) wants it: a random UUID (RFC 9562, version 4) without hyphens.
fn machine_id() -> String {
    let mut bytes = [0; 16];
    fill_at_random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
