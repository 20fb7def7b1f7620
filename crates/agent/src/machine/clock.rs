//! The guest's wall clock.

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// Nanoseconds since 1970.
pub(crate) fn wall_ns() -> i128 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// Nanoseconds since boot.
pub(crate) fn since_boot_ns() -> i128 {
    nanoseconds(clock_gettime(ClockId::Boottime))
}

/// A clock that is behind by less is right.
const BEHIND_NS: i64 = 5_000_000;

/// A clock that is ahead by less may be right: the time that the host gave is as old as the way was long, and on a
/// busy machine that is long.
const AHEAD_NS: i64 = 2_000_000_000;

/// Sets the clock if it is surely wrong. One that the kernel has just taken from the host itself is not set back by
/// the time that a message took.
pub(crate) fn correct(wall_ns: u64) -> rustix::io::Result<()> {
    if is_plausible(wall_ns_difference(wall_ns)) {
        return Ok(());
    }
    set(wall_ns).map(|_| ())
}

fn is_plausible(ahead_ns: i64) -> bool {
    (-BEHIND_NS..AHEAD_NS).contains(&ahead_ns)
}

/// Sets the clock; returns how far it was ahead before.
pub(crate) fn set(wall_ns: u64) -> rustix::io::Result<i64> {
    let ahead = wall_ns_difference(wall_ns);
    let second = 1_000_000_000;
    let time =
        Timespec { tv_sec: i64::try_from(wall_ns / second).unwrap_or(i64::MAX), tv_nsec: (wall_ns % second) as i64 };
    clock_settime(ClockId::Realtime, time)?;
    Ok(ahead)
}

fn wall_ns_difference(to: u64) -> i64 {
    let ahead = self::wall_ns() - i128::from(to);
    i64::try_from(ahead).unwrap_or(if ahead < 0 { -i64::MAX } else { i64::MAX })
}

fn nanoseconds(time: Timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_message_sets_no_clock_back() {
        let second = 1_000_000_000;
        assert!([0, 1, 236_000_000, second, -1_000_000].into_iter().all(is_plausible));
        assert!(![-6_000_000, -second, 3 * second, i64::MAX, -i64::MAX].into_iter().any(is_plausible));
        let now = u64::try_from(wall_ns()).unwrap();
        assert!(is_plausible(wall_ns_difference(now)) && !is_plausible(wall_ns_difference(now + 10 * second as u64)));
        assert!(wall_ns_difference(u64::MAX) < 0);
    }
}
