//! Whether a machine works: its processor time over the last half minute.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;

/// The span that is looked at.
const SPAN: Duration = Duration::from_secs(30);
/// From which share of one processor on a machine works, in per cent.
pub(crate) const BUSY: u64 = 2;

/// What is known of a machine's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// It was not looked at for long enough.
    Unknown,
    /// It works.
    Busy,
    /// It does next to nothing.
    Quiet,
}

/// The readings of the last half minute.
#[derive(Debug, Default)]
pub(crate) struct Window(VecDeque<(Moment, u64)>);

impl Window {
    /// Adds a reading of the processor time, in microseconds.
    pub(crate) fn add(&mut self, at: Moment, cpu_us: u64) {
        if self.0.back().is_some_and(|(last, before)| *last > at || *before > cpu_us) {
            // The clock was put back, or it is another machine.
            self.0.clear();
        }
        self.0.push_back((at, cpu_us));
        // The oldest that is kept is the youngest that is old enough.
        while self.0.get(1).is_some_and(|(moment, _)| moment.after(SPAN) <= at) {
            self.0.pop_front();
        }
    }

    /// What the readings say.
    pub(crate) fn work(&self) -> Work {
        let (Some((first, before)), Some((last, after))) = (self.0.front(), self.0.back()) else {
            return Work::Unknown;
        };
        let (span_us, used_us) = (u128::from(last.0.abs_diff(first.0)) * 1000, u128::from(after - before));
        let enough = span_us >= SPAN.as_micros();
        // One that has worked this much already works, however long it will be looked at.
        if used_us * 100 >= u128::from(BUSY) * span_us.max(SPAN.as_micros()) {
            Work::Busy
        } else if enough {
            Work::Quiet
        } else {
            Work::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(readings: &[(i64, u64)]) -> Work {
        let mut window = Window::default();
        for (seconds, cpu_ms) in readings {
            window.add(Moment(seconds * 1000), cpu_ms * 1000);
        }
        window.work()
    }

    #[test]
    fn work_is_known_after_half_a_minute_or_when_there_is_enough_of_it() {
        assert_eq!(window(&[]), Work::Unknown);
        assert_eq!(window(&[(0, 100)]), Work::Unknown);
        assert_eq!(window(&[(0, 100), (5, 120), (10, 130)]), Work::Unknown);
        assert_eq!(window(&[(0, 100), (5, 120), (10, 130), (30, 200)]), Work::Quiet);
        assert_eq!(window(&[(0, 100), (5, 5000)]), Work::Busy);
        assert_eq!(window(&[(0, 0), (30, 599)]), Work::Quiet);
        assert_eq!(window(&[(0, 0), (30, 600)]), Work::Busy);
    }

    #[test]
    fn old_work_is_forgotten() {
        assert_eq!(window(&[(0, 0), (5, 5000), (10, 5000), (20, 5000), (34, 5000)]), Work::Busy);
        assert_eq!(window(&[(0, 0), (5, 5000), (10, 5000), (20, 5000), (40, 5000)]), Work::Quiet);
    }

    #[test]
    fn another_machine_or_another_clock_begins_anew() {
        assert_eq!(window(&[(0, 1000), (40, 10)]), Work::Unknown);
        assert_eq!(window(&[(1000, 10), (40, 10)]), Work::Unknown);
    }

    proptest! {
        #[test]
        fn the_window_stays_small(steps in prop::collection::vec((-1_i64..10, 0_u64..10_000), 0..500)) {
            let (mut window, mut at, mut used) = (Window::default(), 0, 0);
            for (seconds, more) in steps {
                at += seconds * 1000;
                used += more;
                window.add(Moment(at), used);
                let inside = window.0.iter().filter(|(moment, _)| moment.after(SPAN).0 <= at).count();
                prop_assert!(inside <= 1, "one that is old enough is enough");
            }
        }
    }
}
