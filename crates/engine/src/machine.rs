//! A machine: what is asked for, what is remembered of it, and the running thing itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hutch_units::{Mebibytes, SandboxId};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::agent;

/// The ways to run a guest's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Linux's user-mode port as an unprivileged process in a jail.
    Usermode,
}

/// What stands between a guest and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// A kernel of the guest's own, as a jailed process on the host's kernel.
    UserKernel,
}

impl EngineKind {
    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usermode => "usermode",
        }
    }

    /// The boundary that this engine gives.
    pub const fn isolation(self) -> Isolation {
        match self {
            Self::Usermode => Isolation::UserKernel,
        }
    }
}

impl Isolation {
    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserKernel => "user-kernel",
        }
    }
}

/// What a machine is made from. Whoever asks for it records it first: with it alone
/// [`crate::Engine::destroy`] removes whatever a start left, however far it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSpec {
    /// Names the cgroup and everything else on the host.
    pub id: SandboxId,
    /// A directory of the sandbox's own, made by the caller; socket and console log come to lie in it.
    pub state_dir: PathBuf,
    /// The root file system, shared by all and never written: an EROFS file.
    pub base_image: PathBuf,
    /// The writable disk, made by the caller: an ext4 file of its final size.
    pub disk: PathBuf,
    /// Guest memory.
    pub memory: Mebibytes,
    /// Processors, as a weight and, without a quota, as the bound of processor time.
    pub vcpu: u32,
    /// Upper bound of processor time in per cent of one processor; `None` is `vcpu` × 100.
    pub cpu_quota_percent: Option<u32>,
    /// The host user and group id under which the guest runs, and nobody else does.
    pub host_uid: u32,
    /// The host name that the guest sees.
    pub hostname: String,
}

impl MachineSpec {
    /// Where the agent's socket lies.
    pub fn socket(&self) -> PathBuf {
        self.state_dir.join("agent.sock")
    }

    /// Where the kernel itself is reached, to be saved.
    pub fn control_socket(&self) -> PathBuf {
        self.state_dir.join("control.sock")
    }

    /// Where the console's last output is kept once the machine has ended.
    pub fn console_log(&self) -> PathBuf {
        self.state_dir.join("console.log")
    }
}

/// What must be remembered of a started machine to find it again: persisted by the caller, as JSON.
///
/// `format` and `version` come first and can be read without understanding the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Always [`MachineRecord::FORMAT`].
    pub format: String,
    /// [`MachineRecord::VERSION`] of the writer.
    pub version: u32,
    /// The engine that started it.
    pub engine: EngineKind,
    /// The kernel's process id on the host.
    pub pid: u32,
    /// Its start time in clock ticks after boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
    /// The host's boot: `/proc/sys/kernel/random/boot_id`. Another one means the machine is gone.
    pub boot_id: String,
    /// SHA-256 of the guest kernel, hexadecimal.
    pub kernel_digest: String,
    /// SHA-256 of the boot image, hexadecimal; empty in version 1.
    #[serde(default)]
    pub boot_image_digest: String,
    /// The cgroup directories, one for each hierarchy.
    pub cgroups: Vec<PathBuf>,
    /// The key of the template whose pages the machine shares. Since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

impl MachineRecord {
    /// The magic of the persisted form.
    pub const FORMAT: &'static str = "hutch-machine";
    /// The version that this program writes, and the newest that it reads.
    pub const VERSION: u32 = 2;
}

/// How long the phases of a start took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StartTimes {
    /// From the request to the kernel's first instruction: jail, cgroup, descriptors.
    pub launch: Duration,
    /// From there to the agent's first word: a boot, or much less from a saved machine.
    pub boot: Duration,
    /// From there to the agent's acknowledgement of host name, clock, entropy and limits.
    pub configure: Duration,
}

impl StartTimes {
    /// All phases together.
    pub fn total(&self) -> Duration {
        self.launch + self.boot + self.configure
    }
}

/// Why a machine is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// When its end was noticed.
    pub at: SystemTime,
    /// What is known of the cause.
    pub reason: ExitReason,
    /// The last that the guest's console said, as text; may be empty. Written by the guest: not to be trusted.
    pub console: String,
}

/// What is known about the end of a guest's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// It ended itself with this status: shut down, or panicked.
    Exited {
        /// The status, 0 for an orderly halt.
        status: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The host killed it since it went over its cgroup's memory.
    OutOfMemory,
    /// It is gone and was not our child (the service was restarted since), so the status went to another.
    Unknown,
}

/// A running machine. Dropping it disconnects; the machine runs on.
#[derive(Debug)]
pub struct Machine {
    /// What to persist.
    pub record: MachineRecord,
    /// The agent inside, already configured.
    pub agent: agent::Client,
    /// How long the start took; `None` when it was adopted.
    pub times: Option<StartTimes>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Machine {
    /// Puts together what an engine has started. `exit` becomes `Some` once, when the kernel's process ends.
    pub fn new(
        record: MachineRecord,
        agent: agent::Client,
        times: Option<StartTimes>,
        exit: watch::Receiver<Option<Exit>>,
    ) -> Self {
        Self { record, agent, times, exit }
    }

    /// Resolves when the guest's kernel is gone, at once if it already is. May be awaited by many, often, and
    /// dropped at any time. The future does not borrow the machine.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + 'static {
        let mut exit = self.exit.clone();
        async move {
            match exit.wait_for(Option::is_some).await.map(|seen| seen.clone()) {
                Ok(Some(seen)) => seen,
                // The watcher is gone without a word: only when the runtime is being shut down.
                Ok(None) | Err(_) => std::future::pending().await,
            }
        }
    }

    /// Becomes `Some` once, when the kernel's process ends.
    pub(crate) fn exit(&self) -> watch::Receiver<Option<Exit>> {
        self.exit.clone()
    }

    /// Whether the kernel's process has ended.
    pub fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// The cgroup directories of the machine.
    pub fn cgroups(&self) -> &[PathBuf] {
        &self.record.cgroups
    }
}

/// The host's current boot, as a [`MachineRecord`] names it.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn host_boot_id() -> std::io::Result<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    std::fs::read_to_string(path).map(|text| text.trim().to_owned())
}
