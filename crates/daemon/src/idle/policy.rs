//! The decision: a function of what is known, and nothing else.

use std::borrow::Cow;
use std::time::Duration;

use super::window::Work;
use crate::clock::Moment;
use crate::lifecycle::State;
use crate::store::SandboxRow;

/// What is known of a sandbox beside its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// When something was last done with it.
    pub(crate) last: Moment,
    /// How many commands run and files are on their way.
    pub(crate) running: u64,
    /// Its own work.
    pub(crate) work: Work,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing.
    Leave,
    /// Pause it.
    Pause(Cow<'static, str>),
    /// Destroy it.
    Destroy(Cow<'static, str>),
}

/// What is to be done with a sandbox now.
pub(crate) fn decide(row: &SandboxRow, seen: Seen, now: Moment) -> Decision {
    if matches!(row.state, State::Destroying | State::Destroyed | State::Failed) {
        return Decision::Leave;
    }
    if row.expires_at.is_some_and(|end| end <= now) {
        return Decision::Destroy("expired".into());
    }
    let Some(since) = idle_since(row, seen) else { return Decision::Leave };
    let over = |limit: Option<u32>| limit.filter(|limit| since.after(Duration::from_secs(u64::from(*limit))) <= now);
    if let Some(seconds) = over(row.auto_destroy_after_seconds) {
        return Decision::Destroy(format!("idle for {seconds} seconds").into());
    }
    match over(row.auto_pause_after_seconds) {
        Some(seconds) if row.state == State::Running => Decision::Pause(format!("idle for {seconds} seconds").into()),
        _ => Decision::Leave,
    }
}

/// Since when nobody needs it; `None` when somebody does, or when that is not known yet.
fn idle_since(row: &SandboxRow, seen: Seen) -> Option<Moment> {
    let is_idle = match row.state {
        State::Running => seen.running == 0 && seen.work == Work::Quiet,
        // Nothing runs in it.
        State::Paused | State::Error => true,
        // Somebody is at it.
        _ => false,
    };
    // One that has just come back is not idle for as long as it was away.
    let returned = row.last_resumed_at.or(row.running_at).unwrap_or(row.created_at);
    is_idle.then_some(seen.last.max(returned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;
    use proptest::prelude::*;

    const BASE: i64 = 1_700_000_000_000;

    fn at(seconds: i64) -> Moment {
        Moment(BASE + seconds * 1000)
    }

    fn limited(pause: Option<u32>, destroy: Option<u32>) -> SandboxRow {
        SandboxRow { auto_pause_after_seconds: pause, auto_destroy_after_seconds: destroy, ..tests::row() }
    }

    fn quiet(last: Moment) -> Seen {
        Seen { last, running: 0, work: Work::Quiet }
    }

    #[test]
    fn idle_is_who_has_nobody_and_does_nothing() {
        let row = limited(Some(60), None);
        let decide = |seen, now| decide(&row, seen, at(now));
        assert_eq!(decide(quiet(at(0)), 59), Decision::Leave);
        assert_eq!(decide(quiet(at(0)), 60), Decision::Pause("idle for 60 seconds".into()));
        assert_eq!(decide(quiet(at(30)), 60), Decision::Leave);
        assert_eq!(decide(Seen { running: 1, ..quiet(at(0)) }, 6000), Decision::Leave);
        assert_eq!(decide(Seen { work: Work::Busy, ..quiet(at(0)) }, 6000), Decision::Leave);
        assert_eq!(decide(Seen { work: Work::Unknown, ..quiet(at(0)) }, 6000), Decision::Leave);
    }

    #[test]
    fn a_pause_does_not_count_when_it_is_over() {
        let row = SandboxRow { last_resumed_at: Some(at(3600)), ..limited(Some(60), Some(120)) };
        assert_eq!(decide(&row, quiet(at(0)), at(3659)), Decision::Leave);
        assert!(matches!(decide(&row, quiet(at(0)), at(3660)), Decision::Pause(_)));
        assert!(matches!(decide(&row, quiet(at(0)), at(3720)), Decision::Destroy(_)));
    }

    #[test]
    fn what_is_paused_is_idle_and_ends_in_time() {
        let row = SandboxRow { state: State::Paused, ..limited(Some(60), Some(3600)) };
        let nothing = Seen { work: Work::Unknown, ..quiet(at(0)) };
        assert_eq!(decide(&row, nothing, at(3599)), Decision::Leave);
        assert!(matches!(decide(&row, nothing, at(3600)), Decision::Destroy(_)));
    }

    fn rows() -> impl Strategy<Value = (SandboxRow, Seen, Moment)> {
        let limits = (prop::option::of(60_u32..1000), prop::option::of(60_u32..1000), prop::option::of(0_i64..2000));
        let work = prop::sample::select(vec![Work::Unknown, Work::Busy, Work::Quiet]);
        let state = prop::sample::select(State::ALL.to_vec());
        let times = (prop::option::of(0_i64..2000), 0_i64..2000, 0_i64..4000);
        (limits, state, work, 0_u64..3, times).prop_map(|((pause, destroy, expires), state, work, running, times)| {
            let (resumed, last, now) = times;
            let row = SandboxRow {
                state,
                last_resumed_at: resumed.map(at),
                expires_at: expires.map(at),
                ..limited(pause, destroy)
            };
            (row, Seen { last: at(last), running, work }, at(now))
        })
    }

    proptest! {
        #[test]
        fn who_is_needed_is_left_alone((row, seen, now) in rows()) {
            let row = SandboxRow { expires_at: None, ..row };
            let is_needed = seen.running > 0 || seen.work != Work::Quiet;
            if row.state == State::Running && is_needed {
                prop_assert_eq!(decide(&row, seen, now), Decision::Leave);
            }
        }

        #[test]
        fn nothing_is_done_before_its_time((row, seen, now) in rows()) {
            let since = row.last_resumed_at.map_or(seen.last, |resumed| resumed.max(seen.last));
            let waited = Duration::from_millis(now.0.saturating_sub(since.0).max(0).unsigned_abs()).as_secs();
            let reached = |limit: Option<u32>| limit.is_some_and(|limit| waited >= u64::from(limit));
            match decide(&row, seen, now) {
                Decision::Pause(_) => {
                    prop_assert_eq!(row.state, State::Running);
                    prop_assert!(reached(row.auto_pause_after_seconds));
                }
                Decision::Destroy(cause) if cause == "expired" => prop_assert!(row.expires_at <= Some(now)),
                Decision::Destroy(_) => prop_assert!(reached(row.auto_destroy_after_seconds)),
                Decision::Leave => {}
            }
        }

        #[test]
        fn what_was_decided_stays_decided_until_something_happens((row, seen, now) in rows(), later in 0_u64..1000) {
            let (first, then) = (decide(&row, seen, now), decide(&row, seen, now.after(Duration::from_secs(later))));
            let is_kept = match first {
                Decision::Leave => true,
                // An expiry or an end may have come in between.
                Decision::Pause(_) => then != Decision::Leave,
                Decision::Destroy(_) => matches!(then, Decision::Destroy(_)),
            };
            prop_assert!(is_kept);
        }

        #[test]
        fn activity_puts_it_off((row, seen, now) in rows()) {
            let row = SandboxRow { expires_at: None, ..row };
            prop_assert_eq!(decide(&row, Seen { last: now, ..seen }, now), Decision::Leave);
        }

        #[test]
        fn what_ends_or_has_ended_is_left_alone((row, seen, now) in rows()) {
            if matches!(row.state, State::Destroying | State::Destroyed | State::Failed) {
                prop_assert_eq!(decide(&row, seen, now), Decision::Leave);
            }
        }
    }
}
