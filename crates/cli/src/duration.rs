//! Durations as people type them: `30s`, `1m30s`, `250ms`, `2h`.

use std::time::Duration;

use hutch_api::Timestamp;

/// Reads a duration: whole numbers, each with its unit, the larger before the smaller by custom but not by force.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write a number with its unit, like 30s, 5m, 1h30m or 500ms");
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 3600 * 1000,
            "d" => 24 * 3600 * 1000,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    Ok(total)
}

/// How long ago a moment is.
pub(crate) fn since(moment: Timestamp, now: Timestamp) -> String {
    let milliseconds = now.unix_milliseconds() - moment.unix_milliseconds();
    show(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0)))
}

/// Seconds from outside: what is no span of time is none.
pub(crate) fn from_seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// A duration in at most two units.
pub(crate) fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("1500ms"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "soon", "30", "s", "1.5s", "-1s", "1 s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shown_in_the_unit_that_reads_best() {
        let shown = |milliseconds| show(Duration::from_millis(milliseconds));
        assert_eq!((shown(812), shown(1250), shown(65_000)), ("812 ms".into(), "1.2 s".into(), "65 s".into()));
        assert_eq!((shown(200_000), shown(8_000_000)), ("3 min".into(), "2 h".into()));
    }
}
