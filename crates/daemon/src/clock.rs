//! Time as the store keeps it, and the clock that logic is given instead of asking the system.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// A moment in wall-clock time: milliseconds since 1970-01-01T00:00:00Z, the resolution of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    /// The moment this long after; saturates at the end of representable time.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The moment this long before; saturates.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The same moment as the API's type. A value outside of what that type can express, which only a damaged
    /// store could hold, becomes the epoch.
    pub fn date_time(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }
}

/// Where the daemon's logic reads the time: the system's clock, or one that a test turns by hand.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// The system's wall clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still at `start` until [`Clock::advance`] is called on it or on a clone.
    pub fn standing(start: Moment) -> Self {
        Self(Source::Set(Arc::new(AtomicI64::new(start.0))))
    }

    /// The current moment. A system clock before 1970 reads as 1970.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Moment(0).after(since)
            }
            Source::Set(moment) => Moment(moment.load(Ordering::SeqCst)),
        }
    }

    /// Turns a standing clock on; the system's clock is not ours to turn and stays as it is.
    pub fn advance(&self, span: Duration) {
        if let Source::Set(moment) = &self.0 {
            moment.fetch_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Clock({:?})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_clock_moves_only_by_hand() {
        let clock = Clock::standing(Moment(1_000));
        let other = clock.clone();
        other.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), Moment(3_000));
        assert_eq!(Moment(1_500).date_time().unix_timestamp_nanos(), 1_500_000_000);
    }
}
