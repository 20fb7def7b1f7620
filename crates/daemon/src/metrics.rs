//! Metrics in the text form of Prometheus (exposition format 0.0.4).
//!
//! Every series is known at compile time: labels come from closed enums, so that no caller can make the daemon
//! keep a series of its own. Names and units follow the conventions of Prometheus: `_total` for what only grows,
//! seconds and bytes.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hutch_api::Usage;

use crate::lifecycle::State;

/// Upper bounds of the buckets of the latency histograms, in seconds.
const BOUNDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The classes of statuses, by their first digit.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A sandbox came to run.
    Created,
    /// One of them took over a machine that waited.
    FromPool,
    /// One of them began as a template.
    FromClone,
    /// One of them booted.
    FromBoot,
    /// A template was made.
    TemplateMade,
    /// A template could not be made.
    TemplateFailed,
    /// A sandbox did not come to run.
    CreateFailed,
    /// A create was refused for want of room.
    CreateRefused,
    /// A sandbox was taken down on request or by its expiry.
    Destroyed,
    /// The machine of a running sandbox died.
    MachineLost,
    /// A machine was found again after a restart of the daemon.
    Adopted,
    /// A command was started.
    ExecStarted,
    /// A command's end is not known, since its sandbox was lost.
    ExecLost,
    /// The agent failed or refused in a way that no caller is to blame for.
    AgentError,
    /// An image was built.
    ImageBuilt,
    /// The build of an image failed.
    ImageBuildFailed,
    /// A sandbox was paused for being idle.
    IdlePaused,
    /// A sandbox was taken down for being idle, or since its time was over.
    IdleDestroyed,
    /// A guest asked for its own pause or end.
    SelfSignal,
    /// An artefact without an owner was removed.
    OrphanRemoved,
    /// Bytes written into sandboxes by the file operations.
    FileBytesIn,
    /// Bytes read out of sandboxes by the file operations.
    FileBytesOut,
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// From the create request to the running sandbox.
    Create,
    /// From the exec request to the command's end.
    Exec,
    /// From the request to destroy to the clean host.
    Destroy,
    /// From an API request to the head of its answer.
    Request,
    /// From the wish to pause to the paused sandbox, of which nothing runs.
    Pause,
    /// From the wish to resume to the agent's acknowledgement.
    Resume,
    /// From the fork request to the last copy that runs.
    Fork,
    /// How long the source of a fork stood still.
    ForkStall,
    /// From the wish for a snapshot to its last byte.
    Snapshot,
}

/// All counters and histograms.
#[derive(Debug, Default)]
pub struct Metrics {
    counters: [AtomicU64; Count::ALL.len()],
    histograms: [Histogram; Timing::ALL.len()],
    /// Answers by the first digit of their status.
    answers: [AtomicU64; CLASSES.len()],
}

/// What is read off at the moment of asking, and not counted.
#[derive(Debug, Clone, Default)]
pub struct Gauges {
    /// Rows by state.
    pub sandboxes: Vec<(State, u64)>,
    /// Memory for further sandboxes in MiB.
    pub free_memory_mib: u64,
    /// Free space for disks in bytes.
    pub free_disk_bytes: u64,
    /// Commands that run.
    pub execs_running: u64,
    /// Machines that wait for a create.
    pub machines_waiting: u64,
    /// Templates that sandboxes can begin as.
    pub templates: u64,
    /// Named snapshots.
    pub snapshots: u64,
    /// What all sandboxes used since the beginning of the ledger.
    pub used: Usage,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum_microseconds: AtomicU64,
}

impl Metrics {
    /// Counts one.
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts several, or an amount.
    pub fn add(&self, what: Count, amount: u64) {
        self.counters[what as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn counted(&self, what: Count) -> u64 {
        self.counters[what as usize].load(Ordering::Relaxed)
    }

    /// Records how long something took.
    pub fn time(&self, what: Timing, took: Duration) {
        self.histograms[what as usize].record(took);
    }

    /// Counts an answer of the API.
    pub fn answered(&self, status: u16, took: Duration) {
        if let Some(class) = usize::from(status / 100).checked_sub(2).and_then(|class| self.answers.get(class)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
        self.time(Timing::Request, took);
    }

    /// Everything as text.
    pub fn render(&self, gauges: &Gauges) -> String {
        let mut text = String::with_capacity(8192);
        for count in Count::ALL {
            let (name, help) = count.described();
            series(&mut text, name, "counter", help);
            line(&mut text, name, "", self.counted(count));
        }
        for timing in Timing::ALL {
            self.histograms[timing as usize].render(&mut text, timing);
        }
        series(&mut text, "hutch_answers_total", "counter", "Answers of the API by class of status.");
        for (class, count) in CLASSES.iter().zip(&self.answers) {
            line(&mut text, "hutch_answers_total", &format!("class=\"{class}\""), count.load(Ordering::Relaxed));
        }
        gauges.render(&mut text);
        process(&mut text);
        text
    }
}

impl Histogram {
    fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            if seconds <= bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    fn render(&self, text: &mut String, timing: Timing) {
        let (name, help) = timing.described();
        series(text, name, "histogram", help);
        // The count is read first: a bucket may be ahead of it for an instant but is capped, so that buckets never
        // exceed the count.
        let count = self.count.load(Ordering::Relaxed);
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            let value = bucket.load(Ordering::Relaxed).min(count);
            line(text, &format!("{name}_bucket"), &format!("le=\"{bound}\""), value);
        }
        line(text, &format!("{name}_bucket"), "le=\"+Inf\"", count);
        let sum = Duration::from_micros(self.sum_microseconds.load(Ordering::Relaxed)).as_secs_f64();
        line(text, &format!("{name}_sum"), "", sum);
        line(text, &format!("{name}_count"), "", count);
    }
}

impl Gauges {
    fn render(&self, text: &mut String) {
        series(text, "hutch_sandboxes", "gauge", "Sandboxes by state; ended ones until their rows are swept.");
        for state in State::ALL {
            let count = self.sandboxes.iter().find(|(found, _)| *found == state).map_or(0, |(_, count)| *count);
            line(text, "hutch_sandboxes", &format!("state=\"{state}\""), count);
        }
        let mut one = |name, help, value: u64| {
            series(text, name, "gauge", help);
            line(text, name, "", value);
        };
        one("hutch_memory_free_bytes", "Memory for further sandboxes.", self.free_memory_mib << 20);
        one("hutch_disk_free_bytes", "Free space on the data directory's file system.", self.free_disk_bytes);
        one("hutch_execs_running", "Commands that run.", self.execs_running);
        one("hutch_machines_waiting", "Machines that wait for a create.", self.machines_waiting);
        one("hutch_templates", "Templates that sandboxes can begin as.", self.templates);
        one("hutch_snapshots", "Named snapshots.", self.snapshots);
        let all = self.used;
        let mut used = |name, help, value: f64| {
            series(text, name, "counter", help);
            line(text, name, "", value);
        };
        used("hutch_usage_active_seconds_total", "Seconds in which machines existed.", all.active_seconds);
        used("hutch_usage_paused_seconds_total", "Seconds in which sandboxes were paused.", all.paused_seconds);
        used("hutch_usage_cpu_seconds_total", "Processor time of machines.", all.cpu_seconds);
        used("hutch_usage_memory_mib_seconds_total", "Memory of machines over time.", all.memory_mib_seconds);
        used("hutch_usage_disk_mib_seconds_total", "Disk space of sandboxes over time.", all.disk_mib_seconds);
    }
}

/// The daemon's own process, under the names that every Prometheus client uses.
fn process(text: &mut String) {
    let mut one = |name, kind, help, value: Option<f64>| {
        if let Some(value) = value {
            series(text, name, kind, help);
            line(text, name, "", value);
        }
    };
    let usage = process_usage();
    one("process_cpu_seconds_total", "counter", "Processor time of the daemon.", usage.cpu_seconds);
    one("process_resident_memory_bytes", "gauge", "Resident memory of the daemon.", usage.resident_bytes);
    one("process_threads", "gauge", "Threads of the daemon.", usage.threads);
    one("process_open_fds", "gauge", "Open file descriptors of the daemon.", usage.descriptors);
    let build = "hutch_build_info";
    series(text, build, "gauge", "The version of the daemon.");
    line(text, build, concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1);
}

struct ProcessUsage {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    threads: Option<f64>,
    descriptors: Option<f64>,
}

fn process_usage() -> ProcessUsage {
    // Fields 14, 15, 20 and 24 of /proc/<pid>/stat (proc_pid_stat(5)), counted after the name in parentheses.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
        .unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).copied();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page = rustix::param::page_size() as f64;
    let descriptors = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    ProcessUsage {
        cpu_seconds: field(14).zip(field(15)).map(|(user, system)| (user + system) / ticks),
        resident_bytes: field(24).map(|pages| pages * page),
        threads: field(20),
        descriptors,
    }
}

fn series(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to a string cannot fail");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    writeln!(text, "{name}{labels} {value}").expect("writing to a string cannot fail");
}

impl Count {
    /// Everything that is counted.
    pub const ALL: [Self; 22] = [
        Self::Created,
        Self::FromPool,
        Self::FromClone,
        Self::FromBoot,
        Self::TemplateMade,
        Self::TemplateFailed,
        Self::CreateFailed,
        Self::CreateRefused,
        Self::Destroyed,
        Self::MachineLost,
        Self::Adopted,
        Self::ExecStarted,
        Self::ExecLost,
        Self::AgentError,
        Self::ImageBuilt,
        Self::ImageBuildFailed,
        Self::IdlePaused,
        Self::IdleDestroyed,
        Self::SelfSignal,
        Self::OrphanRemoved,
        Self::FileBytesIn,
        Self::FileBytesOut,
    ];

    fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::Created => ("hutch_creates_total", "Sandboxes that came to run."),
            Self::FromPool => ("hutch_creates_from_pool_total", "Sandboxes that took over a machine that waited."),
            Self::FromClone => ("hutch_creates_from_template_total", "Sandboxes that were cloned from a template."),
            Self::FromBoot => ("hutch_creates_from_boot_total", "Sandboxes that booted."),
            Self::TemplateMade => ("hutch_templates_made_total", "Templates that were made."),
            Self::TemplateFailed => ("hutch_template_failures_total", "Templates that could not be made."),
            Self::CreateFailed => ("hutch_create_failures_total", "Sandboxes that did not come to run."),
            Self::CreateRefused => ("hutch_create_refusals_total", "Creates that were refused for want of room."),
            Self::Destroyed => ("hutch_destroys_total", "Sandboxes that were taken down."),
            Self::MachineLost => ("hutch_machines_lost_total", "Running sandboxes whose machine died."),
            Self::Adopted => ("hutch_adoptions_total", "Machines that were found again after a restart."),
            Self::ExecStarted => ("hutch_execs_total", "Commands that were started."),
            Self::ExecLost => ("hutch_execs_lost_total", "Commands that were lost with their sandbox."),
            Self::AgentError => ("hutch_agent_errors_total", "Failures of agents that no caller is to blame for."),
            Self::ImageBuilt => ("hutch_image_builds_total", "Images that were built."),
            Self::ImageBuildFailed => ("hutch_image_build_failures_total", "Builds of images that failed."),
            Self::IdlePaused => ("hutch_idle_pauses_total", "Sandboxes that were paused for being idle."),
            Self::IdleDestroyed => {
                ("hutch_idle_destroys_total", "Sandboxes that were idle or expired and were taken down.")
            }
            Self::SelfSignal => ("hutch_self_signals_total", "Wishes of guests for their own pause or end."),
            Self::OrphanRemoved => ("hutch_orphans_removed_total", "Artefacts without an owner that were removed."),
            Self::FileBytesIn => ("hutch_file_bytes_in_total", "Bytes written into sandboxes."),
            Self::FileBytesOut => ("hutch_file_bytes_out_total", "Bytes read out of sandboxes."),
        }
    }
}

impl Timing {
    /// Everything that is timed.
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::Exec,
        Self::Destroy,
        Self::Request,
        Self::Pause,
        Self::Resume,
        Self::Fork,
        Self::ForkStall,
        Self::Snapshot,
    ];

    fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::Create => ("hutch_create_seconds", "From the create request to the running sandbox."),
            Self::Exec => ("hutch_exec_seconds", "From the exec request to the end of the command."),
            Self::Destroy => ("hutch_destroy_seconds", "From the request to destroy to the clean host."),
            Self::Request => ("hutch_request_seconds", "From an API request to the head of its answer."),
            Self::Pause => ("hutch_pause_seconds", "From the wish to pause to the paused sandbox."),
            Self::Resume => ("hutch_resume_seconds", "From the wish to resume to the running sandbox."),
            Self::Fork => ("hutch_fork_seconds", "From the fork request to the last copy that runs."),
            Self::ForkStall => ("hutch_fork_stall_seconds", "How long the source of a fork stood still."),
            Self::Snapshot => ("hutch_snapshot_seconds", "From the wish for a snapshot to its last byte."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_enums_index_their_own_counters() {
        let indices: BTreeSet<usize> = Count::ALL.iter().map(|count| *count as usize).collect();
        assert_eq!(indices, (0..Count::ALL.len()).collect());
        let indices: BTreeSet<usize> = Timing::ALL.iter().map(|timing| *timing as usize).collect();
        assert_eq!(indices, (0..Timing::ALL.len()).collect());
    }

    #[test]
    fn every_series_is_described_once_and_every_line_has_a_number() {
        let metrics = Metrics::default();
        metrics.count(Count::Created);
        metrics.time(Timing::Exec, Duration::from_millis(3));
        let gauges = Gauges { sandboxes: vec![(State::Running, 2)], ..Gauges::default() };
        let text = metrics.render(&gauges);
        let types: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(types.len(), types.iter().collect::<BTreeSet<_>>().len());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok() && name.starts_with(char::is_alphabetic), "{line}");
        }
        for expected in [
            "hutch_creates_total 1",
            "hutch_sandboxes{state=\"running\"} 2",
            "hutch_sandboxes{state=\"failed\"} 0",
            "hutch_exec_seconds_bucket{le=\"0.0025\"} 0",
            "hutch_exec_seconds_bucket{le=\"0.005\"} 1",
            "hutch_exec_seconds_bucket{le=\"+Inf\"} 1",
            "hutch_exec_seconds_sum 0.003",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected}\n{text}");
        }
    }
}
