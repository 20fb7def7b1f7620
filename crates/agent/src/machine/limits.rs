//! How much of the guest its users may have.

use crate::exec::group::Limits;

/// Memory that the agent itself is never without, bytes.
pub(crate) const AGENT: u64 = 8 << 20;

/// The bounds for users in a guest of this memory, where the host does not say otherwise. What is kept for
/// the kernel is what it needs for page tables and the agent's answers while users' memory is full; what is
/// kept of the processes is what the kernel's own threads and the agent need.
pub(crate) fn limits(total: u64, reserve: Option<u64>, processes_max: Option<u64>) -> Limits {
    let reserve = reserve.unwrap_or_else(|| (total / 16).clamp(16 << 20, 256 << 20));
    // However wrong the reserve is, users get something.
    let memory_max = total.saturating_sub(reserve).max(total / 4);
    // Two for each mebibyte: a process costs some 100 KiB of the guest, and on some engines as much of the host.
    let processes_max = processes_max.unwrap_or_else(|| (total / (512 << 10)).clamp(512, 8192));
    Limits { memory_max: Some(memory_max), processes_max: Some(processes_max.max(16)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_get_most_but_never_all_and_never_nothing() {
        let limits = |total: u64, reserve| limits(total << 20, reserve, None);
        assert_eq!(limits(256, None), Limits { memory_max: Some(240 << 20), processes_max: Some(512) });
        assert_eq!(limits(1024, None).processes_max, Some(2048));
        assert_eq!(limits(16384, None).memory_max, Some((16384 - 256) << 20));
        assert_eq!(limits(256, Some(u64::MAX)).memory_max, Some(64 << 20));
        assert_eq!(limits(32, None), Limits { memory_max: Some(16 << 20), processes_max: Some(512) });
    }
}
