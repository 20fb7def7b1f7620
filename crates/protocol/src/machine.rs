//! Requests about the guest as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::{ByteText, base64_bytes};

/// Fewest bytes of entropy that `Configure` and `Reseed` must bring.
pub const ENTROPY_MIN: usize = 64;

/// Most bytes of entropy in one request.
pub const ENTROPY_MAX: usize = 4096;

/// How long commands whose connection was lost wait for the next [`Configure`] before they are killed,
/// milliseconds of the guest's monotonic clock.
pub const ORPHANS_MS: u64 = 10_000;

/// Most characters of a reason in [`MachineEvent::SelfSignal`].
pub const REASON_MAX: usize = 128;

/// What the guest must know before anything of the user's runs. May be sent again, on any connection.
///
/// Commands whose connection was lost wait for it, up to [`ORPHANS_MS`] of the guest's time: it says whether they
/// go on or are killed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configure {
    /// Host name of the guest; empty leaves it as it is.
    #[serde(default)]
    pub hostname: String,
    /// Wall clock when this was sent, nanoseconds since 1970. A clock that can be right, since the message may have
    /// taken up to two seconds, is left alone; [`SetClock`] sets it whatever it is. `None` leaves it alone.
    #[serde(default)]
    pub wall_ns: Option<u64>,
    /// Random bytes from the host, [`ENTROPY_MIN`] to [`ENTROPY_MAX`], mixed in and credited.
    #[serde(with = "base64_bytes")]
    pub entropy: Vec<u8>,
    /// Environment of every command, under what a command brings itself.
    #[serde(default)]
    pub env: BTreeMap<String, ByteText>,
    /// Memory that users' processes may not have, in bytes, kept for the kernel and the agent; `None`: the
    /// agent chooses by the size of the guest.
    #[serde(default)]
    pub memory_reserve_bytes: Option<u64>,
    /// Most processes and threads of the users together; `None`: the agent chooses.
    #[serde(default)]
    pub processes_max: Option<u64>,
    /// Whether commands of the lost connection go on, with nobody to hear from them: what they write is read and
    /// thrown away, input that had not been ended stays open and empty, their timeouts stay. So it is after a
    /// resume. `false`: they are killed with everything that they started.
    #[serde(default)]
    pub continues: bool,
    /// A new identity for this guest, 32 lower-case hexadecimal digits for `/etc/machine-id`; what the old
    /// identity has left behind is forgotten. `None`: the guest stays who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
}

impl std::fmt::Debug for Configure {
    /// Shows neither entropy nor values of the environment: they are secrets.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Configure")
            .field("hostname", &self.hostname)
            .field("wall_ns", &self.wall_ns)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("memory_reserve_bytes", &self.memory_reserve_bytes)
            .field("processes_max", &self.processes_max)
            .field("continues", &self.continues)
            .field("machine_id", &self.machine_id)
            .finish_non_exhaustive()
    }
}

/// The answer to [`Configure`]: everything in it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// Version of the agent.
    pub agent_version: String,
    /// Release of the guest's kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Machine of the guest's kernel, as `uname -m` prints it.
    pub machine: String,
    /// When the guest booted: wall clock, nanoseconds since 1970.
    pub boot_wall_ns: u64,
    /// How long the agent took from its start to the first connection, in microseconds.
    #[serde(default)]
    pub boot_us: u64,
    /// Whether exec streams have control groups of their own: whole trees can be killed and memory is bounded.
    #[serde(default)]
    pub control_groups: bool,
    /// How long the agent took to do what was asked, microseconds.
    #[serde(default)]
    pub took_us: u64,
}

/// Sets the wall clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetClock {
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
}

/// The answer to [`SetClock`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSet {
    /// How far the clock was ahead of the given time before, in nanoseconds; negative: behind.
    pub was_ahead_ns: i64,
}

/// Mixes random bytes in, credits them and reseeds the generator at once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reseed {
    /// Random bytes from the host, [`ENTROPY_MIN`] to [`ENTROPY_MAX`].
    #[serde(with = "base64_bytes")]
    pub entropy: Vec<u8>,
}

impl std::fmt::Debug for Reseed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reseed").finish_non_exhaustive()
    }
}

/// The answer to [`Reseed`]: from now on no output depends on the old state alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reseeded {}

/// Asks how the guest is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadStats {}

/// The answer to [`ReadStats`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Time since boot in milliseconds.
    pub uptime_ms: u64,
    /// Memory of the guest, bytes.
    pub memory_total_bytes: u64,
    /// Memory that new processes could get, bytes.
    pub memory_available_bytes: u64,
    /// Memory that users' processes may have, bytes; `None` without control groups.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// Memory that users' processes have, page cache included, bytes; `None` without control groups.
    #[serde(default)]
    pub memory_current_bytes: Option<u64>,
    /// Processor time of users' processes, microseconds; `None` without control groups.
    #[serde(default)]
    pub cpu_us: Option<u64>,
    /// Processes and threads of the users, or of the guest where there are no control groups.
    pub processes: u64,
    /// Load averages over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Size of the root file system, bytes.
    pub disk_total_bytes: u64,
    /// What is left of it, bytes.
    pub disk_free_bytes: u64,
    /// Exec streams that are open.
    pub execs: u64,
    /// Commands that go on after their connection was lost, see [`Configure::continues`].
    #[serde(default)]
    pub detached: u64,
    /// Processes killed for want of memory since boot; `None` without control groups.
    #[serde(default)]
    pub out_of_memory_kills: Option<u64>,
}

/// Ends the guest: all processes are killed, file systems written out, the power switched off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {}

/// The answer to [`Shutdown`], sent when file systems are written out, before the power goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShuttingDown {}

/// Brings what every command needs into memory, by running `/bin/sh` once: for a machine that is saved to be
/// started from. Answered before a [`Configure`] too; nothing of the user's runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warm {}

/// The answer to [`Warm`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmed {
    /// How long the command took, microseconds.
    #[serde(default)]
    pub wall_us: u64,
}

/// Asks to be told what the guest wants, until the stream is cancelled: each `Item` is a [`MachineEvent`].
/// Answered before a [`Configure`] too. Of the signals that came while nobody watched the last is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {}

/// The answer to [`Watch`], after its cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {}

/// Something that happened in the guest and that the host may act on. Anybody in the guest can cause one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MachineEvent {
    /// The guest asks for its own pause or end.
    SelfSignal {
        /// What it asks for.
        action: SelfAction,
        /// Why, at most [`REASON_MAX`] characters and none of them a control character.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An event that this end does not know.
    #[serde(other)]
    Other,
}

/// What a guest can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfAction {
    /// To be paused.
    Pause,
    /// To be deleted.
    Delete,
    /// Something that this end does not know.
    #[serde(other)]
    Other,
}
