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

/// A clock that differs less is right: the time that the host gave is older than the way that it came.
const TOLERANCE_NS: i64 = 5_000_000;

/// Sets the clock if it is wrong. A clock that the kernel has just set itself is not set back by the time that a
/// message takes.
pub(crate) fn correct(wall_ns: u64) -> rustix::io::Result<()> {
    if wall_ns_difference(wall_ns).abs() < TOLERANCE_NS {
        return Ok(());
    }
    set(wall_ns).map(|_| ())
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
