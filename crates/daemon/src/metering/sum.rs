//! Segments added up.

use std::time::Duration;

use hutch_api::Usage;

use crate::clock::Moment;
use crate::store::{UsageKind, UsageRow};

/// A span of time: from `from`, included, to `to`, excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its beginning.
    pub(crate) from: Moment,
    /// Its end.
    pub(crate) to: Moment,
}

/// What segments used within a span, as seen at a moment. Processor and disk use of a segment that lies in the span
/// partly is taken to be spread evenly.
pub(crate) fn sum<'a>(segments: impl IntoIterator<Item = &'a UsageRow>, span: Span, now: Moment) -> Usage {
    let mut all = Usage::default();
    for segment in segments {
        add(&mut all, segment, span, now);
    }
    all
}

fn add(all: &mut Usage, segment: &UsageRow, span: Span, now: Moment) {
    let end = segment.ended_at.unwrap_or(now).max(segment.started_at);
    let within = seconds(segment.started_at.max(span.from), end.min(span.to));
    if within <= 0.0 {
        return;
    }
    let whole = seconds(segment.started_at, end);
    let share = within / whole;
    match segment.kind {
        UsageKind::Active => {
            all.active_seconds += within;
            all.memory_mib_seconds += within * segment.memory_mib as f64;
            all.cpu_seconds += Duration::from_micros(segment.cpu_us).as_secs_f64() * share;
        }
        UsageKind::Paused => all.paused_seconds += within,
    }
    // Up to the last measurement it is summed up; since then it is taken to be what it was.
    let measured = segment.disk_kib_ms as f64 / 1024.0 / 1000.0;
    let since = segment.disk_kib as f64 / 1024.0 * seconds(segment.disk_at, end).max(0.0);
    all.disk_mib_seconds += (measured + since) * share;
}

/// From one moment to another; negative when the other is earlier.
fn seconds(from: Moment, to: Moment) -> f64 {
    to.0.saturating_sub(from.0) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_units::SandboxId;
    use proptest::prelude::*;

    const ALWAYS: Span = Span { from: Moment(i64::MIN), to: Moment(i64::MAX) };

    fn segment(kind: UsageKind, from: i64, to: Option<i64>) -> UsageRow {
        UsageRow {
            sandbox: SandboxId::generate(),
            name: "a".to_owned(),
            state: None,
            kind,
            started_at: Moment(from),
            ended_at: to.map(Moment),
            memory_mib: 256,
            cpu_us: 500_000,
            disk_kib: 2048,
            disk_kib_ms: 0,
            disk_at: Moment(from),
        }
    }

    #[test]
    fn a_pause_counts_for_the_disk_only() {
        let segments = [
            segment(UsageKind::Active, 0, Some(10_000)),
            UsageRow { cpu_us: 0, ..segment(UsageKind::Paused, 10_000, Some(3_610_000)) },
            segment(UsageKind::Active, 3_610_000, None),
        ];
        let used = sum(&segments, ALWAYS, Moment(3_615_000));
        assert_eq!((used.active_seconds, used.paused_seconds, used.cpu_seconds), (15.0, 3600.0, 1.0));
        assert_eq!((used.memory_mib_seconds, used.disk_mib_seconds), (15.0 * 256.0, 3615.0 * 2.0));
        let pause = Span { from: Moment(20_000), to: Moment(30_000) };
        let used = sum(&segments, pause, Moment(3_615_000));
        assert_eq!((used.active_seconds, used.paused_seconds, used.cpu_seconds), (0.0, 10.0, 0.0));
    }

    #[test]
    fn nothing_is_used_outside_of_the_span() {
        let segments = [segment(UsageKind::Active, 1000, Some(1000)), segment(UsageKind::Active, 5000, None)];
        let early = Span { from: Moment(i64::MIN), to: Moment(5000) };
        assert_eq!(sum(&segments, early, Moment(9000)), Usage::default());
        let future = Span { from: Moment(9000), to: Moment(i64::MAX) };
        assert_eq!(sum(&segments, future, Moment(9000)), Usage::default());
    }

    proptest! {
        #[test]
        fn spans_that_touch_add_up_to_the_whole(
            segments in prop::collection::vec((any::<bool>(), 0_i64..100_000, 0_i64..100_000, any::<bool>()), 0..20),
            cuts in prop::collection::vec(0_i64..250_000, 0..5),
        ) {
            let now = Moment(300_000);
            let segments: Vec<UsageRow> = segments.into_iter().map(|(active, from, length, open)| {
                let kind = if active { UsageKind::Active } else { UsageKind::Paused };
                segment(kind, from, (!open).then_some(from + length))
            }).collect();
            let mut moments: Vec<Moment> = cuts.into_iter().map(Moment).collect();
            moments.extend([Moment(i64::MIN), Moment(i64::MAX)]);
            moments.sort();
            let parts: Vec<Usage> =
                moments.windows(2).map(|pair| sum(&segments, Span { from: pair[0], to: pair[1] }, now)).collect();
            let whole = sum(&segments, ALWAYS, now);
            let field = |of: fn(&Usage) -> f64| (parts.iter().map(of).sum::<f64>(), of(&whole));
            for (parts, whole) in [
                field(|used| used.active_seconds),
                field(|used| used.paused_seconds),
                field(|used| used.cpu_seconds),
                field(|used| used.disk_mib_seconds),
            ] {
                prop_assert!((parts - whole).abs() < 1e-6 * whole.max(1.0), "{parts} {whole}");
            }
        }
    }
}
