//! How many machines should wait, by how many were asked for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The span of time that counts.
const RECENT: Duration = Duration::from_secs(60);
/// After how long without a create nothing waits any more.
const IDLE: Duration = Duration::from_secs(300);
/// How many creates one waiting machine is kept for.
const SHARE: usize = 4;
/// How many creates are remembered: more make no difference.
const MOST: usize = 256;
/// How long after a failure no machine is prepared.
const REST: Duration = Duration::from_secs(10);

/// The creates of the last time.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    recent: VecDeque<Instant>,
    last: Instant,
    resting_until: Option<Instant>,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self { recent: VecDeque::new(), last: now, resting_until: None }
    }

    /// One was asked for.
    pub(super) fn note(&mut self, now: Instant) {
        self.last = now;
        self.recent.push_back(now);
        if self.recent.len() > MOST {
            self.recent.pop_front();
        }
    }

    /// One could not be prepared.
    pub(super) fn rest(&mut self, now: Instant) {
        self.resting_until = Some(now + REST);
    }

    /// Whether nobody has asked for so long that this can be forgotten.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= IDLE
    }

    /// How many should wait now.
    pub(super) fn target(&mut self, now: Instant, most: usize) -> usize {
        if self.is_over(now) || self.resting_until.is_some_and(|until| now < until) {
            return 0;
        }
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= RECENT) {
            self.recent.pop_front();
        }
        (self.recent.len() / SHARE).max(1).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_follows_the_creates() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        assert_eq!(demand.target(start, 8), 1, "one waits for whoever comes first");
        for _ in 0..20 {
            demand.note(start);
        }
        assert_eq!((demand.target(start, 8), demand.target(start, 3)), (5, 3));
        assert_eq!(demand.target(start + RECENT, 8), 1);
        assert_eq!(demand.target(start + IDLE, 8), 0);
        demand.note(start + IDLE);
        demand.rest(start + IDLE);
        assert_eq!(demand.target(start + IDLE, 8), 0);
        assert_eq!(demand.target(start + IDLE + REST, 8), 1);
    }
}
