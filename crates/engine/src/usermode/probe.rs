//! Whether sandboxes can start on this host, found out by looking and by making a jail.

use std::fs;
use std::path::Path;

use hutch_jail::cgroup::{Controller, Layout, LayoutError, Version};
use hutch_jail::specification::{Limits, Specification};
use hutch_units::{Bytes, SandboxId};

use super::console::Console;
use super::launch::{self, LaunchError};
use super::process::{self, Process};
use super::teardown::remove_cgroup_directory;
use super::user_mode::{Shared, blocking};
use crate::finding::{Finding, Verdict};
use crate::guest::GuestFiles;
use crate::machine::{Exit, ExitReason};

/// Mappings that one process should be allowed. Each run of pages that a guest's program has touched is a mapping of
/// the process that runs it: with the kernel's default of 65530, a program whose memory is scattered stands still at
/// 256 MiB.
const MAPPINGS: u64 = 262_144;
/// What to raise it to: the default of several distributions.
const MAPPINGS_WANTED: u64 = 1_048_576;
/// An unprivileged user for the trial; no sandbox has it.
const TRIAL_UID: u32 = 0x3fff_ffff;

/// Looks at everything, one finding each; the jail is tried only when what it needs is there.
pub(super) async fn probe(shared: &Shared) -> Vec<Finding> {
    let mut findings = vec![root(), architecture(), mappings(), executable_memory(), launcher(&shared.launcher)];
    let guest = shared.guest().await;
    findings.push(match &guest {
        Ok(guest) => guest_finding(guest),
        Err(error) => Finding::missing("guest kernel", chain(error), "build it with `cargo xtask guest`"),
    });
    let layout = shared.layout().await;
    findings.push(match &layout {
        Ok(layout) => cgroup_finding(layout),
        Err(error) => cgroup_missing(error),
    });
    let (Ok(guest), Ok(layout)) = (guest, layout) else { return findings };
    if findings.iter().all(|finding| finding.verdict != Verdict::Missing) {
        findings.push(jail(shared, guest, layout).await);
    }
    findings
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn root() -> Finding {
    let subject = "root";
    if rustix::process::geteuid().is_root() {
        return Finding::good(subject, "the service runs as root");
    }
    let found = "the service does not run as root, which it needs to make jails; guests never do";
    Finding::missing(subject, found, "run it with sudo, or as a system service")
}

fn architecture() -> Finding {
    let subject = "processor";
    match std::env::consts::ARCH {
        "x86_64" => Finding::good(subject, "x86-64"),
        other => Finding::missing(subject, other, "the guest kernel runs on x86-64 hosts only"),
    }
}

fn mappings() -> Finding {
    let (subject, path) = ("vm.max_map_count", "/proc/sys/vm/max_map_count");
    let value = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    match value {
        Some(value) if value >= MAPPINGS => Finding::good(subject, value.to_string()),
        Some(value) => Finding::degraded(
            subject,
            format!("{value}: programs in guests may stand still once they use more than {} MiB", value * 4 / 1024),
            format!("sysctl -w vm.max_map_count={MAPPINGS_WANTED}"),
        ),
        None => Finding::degraded(subject, format!("{path} cannot be read"), "mount /proc"),
    }
}

fn executable_memory() -> Finding {
    let subject = "vm.memfd_noexec";
    // Absent on hosts before Linux 6.3, where memory files are always executable.
    match fs::read_to_string("/proc/sys/vm/memfd_noexec").map(|text| text.trim().to_owned()) {
        Ok(value) if value == "2" => {
            Finding::missing(subject, "2: guest memory cannot be executable", "sysctl vm.memfd_noexec=1")
        }
        Ok(value) => Finding::good(subject, value),
        Err(_) => Finding::good(subject, "not known to this host, not needed"),
    }
}

fn launcher(path: &Path) -> Finding {
    let subject = "jail launcher";
    if path.is_file() {
        return Finding::good(subject, path.display().to_string());
    }
    let found = format!("{} is not there", path.display());
    Finding::missing(subject, found, "build it with `cargo build --release --package hutch-jail`")
}

fn guest_finding(guest: &GuestFiles) -> Finding {
    Finding::good("guest kernel", format!("Linux {} in {}", guest.manifest.kernel_release, guest.directory.display()))
}

fn cgroup_finding(layout: &Layout) -> Finding {
    let has = |controller| layout.hierarchies.iter().any(|one| one.controllers.contains(&controller));
    let version = match layout.version {
        Version::V1 => "version 1",
        Version::V2 => "version 2",
    };
    let subject = "cgroups";
    if layout.version == Version::V1 && !has(Controller::Cpuacct) {
        let found = format!("{version} without cpuacct: processor time of sandboxes is not counted");
        return Finding::degraded(subject, found, "mount the cpuacct controller, or use cgroup version 2");
    }
    Finding::good(subject, format!("{version}: memory, cpu, pids"))
}

fn cgroup_missing(error: &LayoutError) -> Finding {
    let fix = match error {
        LayoutError::Controller { .. } => {
            "mount cgroup version 2 at /sys/fs/cgroup, with the memory, cpu and pids controllers"
        }
        LayoutError::Read { .. } => "mount /proc and /sys/fs/cgroup",
        LayoutError::Enable { .. } => {
            "make /sys/fs/cgroup writable and the service root; in a container, give it a cgroup namespace of its own"
        }
    };
    Finding::missing("cgroups", chain(error), fix)
}

/// Runs the guest's kernel in a real jail, only to print its version.
async fn jail(shared: &Shared, guest: &GuestFiles, layout: &Layout) -> Finding {
    let subject = "jail";
    match try_jail(shared, guest, layout).await {
        Ok(Exit { reason: ExitReason::Exited { status: 0 }, .. }) => {
            Finding::good(subject, "namespaces, cgroup, seccomp filter and limits: a kernel was started in it")
        }
        Ok(exit) => {
            let found = format!("a kernel was started in it and ended ({:?}): {}", exit.reason, exit.console);
            Finding::missing(subject, found, "build the guest again with `cargo xtask guest`")
        }
        Err(LaunchError::Jail(failure)) => {
            let fix = failure.hint.clone().unwrap_or_else(|| "see what is said about it above".to_owned());
            Finding::missing(subject, failure.to_string(), fix)
        }
        Err(LaunchError::Launcher(error)) => {
            let fix = "build launcher and service from one version";
            Finding::missing(subject, format!("the launcher did not work: {error}"), fix)
        }
    }
}

async fn try_jail(shared: &Shared, guest: &GuestFiles, layout: &Layout) -> Result<Exit, LaunchError> {
    let id = SandboxId::generate();
    let group = layout.group(&shared.scope, &id.to_string());
    let console = Console::create().map_err(LaunchError::Launcher)?;
    let writer = console.writer().map_err(LaunchError::Launcher)?;
    let specification = Specification {
        format: Specification::FORMAT.to_owned(),
        version: Specification::VERSION,
        id,
        uid: TRIAL_UID,
        program: guest.kernel.clone(),
        arguments: vec!["linux-um".to_owned(), "--version".to_owned()],
        environment: vec!["TERM=linux".to_owned()],
        // Any directory will do that is surely there.
        mount_point: "/proc".into(),
        descriptors: Vec::new(),
        group: group.clone(),
        limits: Limits {
            memory: Bytes(64 << 20),
            cpu_percent: 100,
            cpu_weight: 1,
            processes: 16,
            open_files: 128,
            file_size: Bytes(64 << 20),
        },
    };
    let started = launch::launch(&shared.launcher, &specification, writer).await?;
    let ended = wait(started.pid, console, &group).await;
    let version = layout.version;
    for directory in group.directories {
        // A trial that cannot be removed is found by the audit, whose orphan it is.
        blocking(move || remove_cgroup_directory(id, &directory.path, version)).await.ok();
    }
    ended.map_err(LaunchError::Launcher)
}

/// Waits for the end of the trial, a moment at most.
async fn wait(pid: u32, console: Console, group: &hutch_jail::cgroup::Group) -> std::io::Result<Exit> {
    let process = Process::open_any(pid)?.ok_or(std::io::ErrorKind::NotFound)?;
    let mut exit = process::watch(process, console, group.clone(), None)?;
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), exit.wait_for(Option::is_some)).await;
    let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "the kernel does not even print its version");
    ended.map_err(|_| late)?.ok().and_then(|exit| exit.clone()).ok_or_else(|| std::io::ErrorKind::Other.into())
}
