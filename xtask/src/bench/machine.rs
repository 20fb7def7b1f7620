//! On what the samples were taken: numbers without their machine say nothing.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The machine and the versions, as the first line of a file of samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// `hutch-bench`.
    pub(super) format: String,
    pub(super) version: u32,
    /// Seconds since 1970.
    pub(super) taken_at: u64,
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) memory_mib: u64,
    pub(super) kernel: String,
    pub(super) system: String,
    /// The load averages when the run began.
    pub(super) load: String,
    pub(super) hardware_virtualization: bool,
    pub(super) contestants: BTreeMap<String, String>,
}

pub(super) fn describe(versions: &[(String, String)]) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once([':', '=']).map_or("", |(_, value)| value).trim().trim_matches('"').to_owned()
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kibibytes: u64 = memory.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default();
    Machine {
        format: "hutch-bench".to_owned(),
        version: 1,
        taken_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs()),
        processor: field(&read("/proc/cpuinfo"), "model name"),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        memory_mib: kibibytes / 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        system: field(&read("/etc/os-release"), "PRETTY_NAME"),
        load: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        hardware_virtualization: [" vmx", " svm"].iter().any(|flag| read("/proc/cpuinfo").contains(flag)),
        contestants: versions.iter().cloned().collect(),
    }
}
