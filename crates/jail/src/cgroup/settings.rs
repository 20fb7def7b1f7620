//! What is written into a cgroup to bound a sandbox, as data.

use crate::cgroup::{Controller, Version};
use crate::specification::Limits;

/// One line to write into one file of a cgroup's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The controller whose directory the file is in.
    pub controller: Controller,
    /// The file.
    pub file: &'static str,
    /// What to write.
    pub value: String,
    /// Whether a jail without it is no jail. The others are there only on some kernels.
    pub required: bool,
}

/// The period over which processor time is bounded, in microseconds: the kernel's default.
const PERIOD: u64 = 100_000;

/// The settings for these limits, in the order of writing.
pub fn settings(version: Version, limits: &Limits) -> Vec<Setting> {
    let required = |controller, file, value: String| Setting { controller, file, value, required: true };
    let optional = |controller, file, value: String| Setting { controller, file, value, required: false };
    let memory = limits.memory.0.to_string();
    let quota = u64::from(limits.cpu_percent) * PERIOD / 100;
    match version {
        Version::V1 => vec![
            required(Controller::Memory, "memory.limit_in_bytes", memory.clone()),
            // Memory and swap together get the same bound, which leaves no swap; absent without swap accounting.
            optional(Controller::Memory, "memory.memsw.limit_in_bytes", memory),
            optional(Controller::Memory, "memory.swappiness", "0".to_owned()),
            required(Controller::Cpu, "cpu.cfs_period_us", PERIOD.to_string()),
            required(Controller::Cpu, "cpu.cfs_quota_us", quota.to_string()),
            optional(Controller::Cpu, "cpu.shares", u64::from(limits.cpu_weight).saturating_mul(1024).to_string()),
            required(Controller::Pids, "pids.max", limits.processes.to_string()),
        ],
        Version::V2 => vec![
            required(Controller::Memory, "memory.max", memory),
            optional(Controller::Memory, "memory.swap.max", "0".to_owned()),
            // A kernel that loses one of its processes is of no use: the whole jail goes at once.
            optional(Controller::Memory, "memory.oom.group", "1".to_owned()),
            required(Controller::Cpu, "cpu.max", format!("{quota} {PERIOD}")),
            optional(Controller::Cpu, "cpu.weight", limits.cpu_weight.saturating_mul(100).min(10_000).to_string()),
            required(Controller::Pids, "pids.max", limits.processes.to_string()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_units::Bytes;

    fn text(version: Version) -> String {
        let limits = Limits {
            memory: Bytes(300 << 20),
            cpu_percent: 150,
            cpu_weight: 2,
            processes: 1000,
            open_files: 64,
            file_size: Bytes(1 << 30),
        };
        settings(version, &limits)
            .iter()
            .map(|setting| format!("{}={}{}\n", setting.file, setting.value, if setting.required { "" } else { "?" }))
            .collect()
    }

    #[test]
    fn version_1() {
        assert_eq!(
            text(Version::V1),
            "memory.limit_in_bytes=314572800\nmemory.memsw.limit_in_bytes=314572800?\nmemory.swappiness=0?\n\
             cpu.cfs_period_us=100000\ncpu.cfs_quota_us=150000\ncpu.shares=2048?\npids.max=1000\n"
        );
    }

    #[test]
    fn version_2() {
        assert_eq!(
            text(Version::V2),
            "memory.max=314572800\nmemory.swap.max=0?\nmemory.oom.group=1?\n\
             cpu.max=150000 100000\ncpu.weight=200?\npids.max=1000\n"
        );
    }
}
