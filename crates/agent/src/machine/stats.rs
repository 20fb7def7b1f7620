//! How the guest is.

use std::fs;

use hutch_protocol::machine::Stats;

use super::clock;
use crate::exec::group::Groups;

/// Memory of the guest as the kernel counts it, bytes. Costs far less than reading `/proc/meminfo`.
pub(crate) fn memory_total() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(system.mem_unit.into())
}

/// Reads what the kernel knows; what cannot be read is zero or absent, and commands are the caller's to count.
pub(crate) fn read(groups: Option<&Groups>) -> Stats {
    let meminfo_text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = |key| meminfo(&meminfo_text, key).unwrap_or(0);
    let number = |file| groups.and_then(|groups| groups.number(file));
    let keyed = |file, key| groups.and_then(|groups| groups.keyed(file, key));
    let disk = rustix::fs::statvfs("/").ok();
    let (load, all_processes) = loadavg(&fs::read_to_string("/proc/loadavg").unwrap_or_default());
    Stats {
        uptime_ms: u64::try_from(clock::since_boot_ns() / 1_000_000).unwrap_or(0),
        memory_total_bytes: memory("MemTotal"),
        memory_available_bytes: memory("MemAvailable"),
        memory_limit_bytes: number("memory.max"),
        memory_current_bytes: number("memory.current"),
        cpu_us: keyed("cpu.stat", "usage_usec"),
        processes: number("pids.current").unwrap_or(all_processes),
        load,
        disk_total_bytes: disk.as_ref().map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize)),
        disk_free_bytes: disk.as_ref().map_or(0, |disk| disk.f_bfree.saturating_mul(disk.f_frsize)),
        out_of_memory_kills: keyed("memory.events", "oom_kill"),
        ..Stats::default()
    }
}

/// The bytes behind a key of `/proc/meminfo`.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// `0.00 0.01 0.05 running/all last-pid`.
fn loadavg(text: &str) -> ([f64; 3], u64) {
    let mut fields = text.split_whitespace();
    let mut load = [0.0; 3];
    for average in &mut load {
        *average = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    }
    let all = fields.next().and_then(|field| field.split_once('/')?.1.parse().ok()).unwrap_or(0);
    (load, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        let text = "MemTotal:         245760 kB\nMemFree:  1 kB\nMemAvailable:     100 kB\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(240 << 20));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(loadavg("0.50 0.25 0.00 2/81 4242\n"), ([0.5, 0.25, 0.0], 81));
        assert_eq!(loadavg(""), ([0.0; 3], 0));
        let stats = read(None);
        assert!(stats.memory_total_bytes > 0 && stats.disk_total_bytes > 0);
        assert_eq!(memory_total(), stats.memory_total_bytes);
    }
}
