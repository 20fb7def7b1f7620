//! When a sandbox pauses or ends by itself.

use std::time::Duration;

use clap::Args;

use crate::duration;
use crate::failure::Failure;

/// Limits of time, each `off` or a duration.
#[derive(Debug, Clone, Args)]
pub(crate) struct Limits {
    /// Pause it after it was idle for this long (10m; 1m to 24h), or never (off)
    #[arg(long, value_name = "DURATION|off", value_parser = limit)]
    auto_pause: Option<Limit>,
    /// Destroy it after it was idle for this long (2h; at least 1m), or never (off); paused time counts
    #[arg(long, value_name = "DURATION|off", value_parser = limit)]
    auto_destroy: Option<Limit>,
    /// Destroy it after this long (30m, 8h), whatever it does, or never (off)
    #[arg(long, value_name = "DURATION|off", value_parser = limit)]
    lifetime: Option<Limit>,
}

/// A limit of time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Off,
    After(Duration),
}

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "off" | "never" => Ok(Limit::Off),
        text => duration::parse(text).map(Limit::After).map_err(|wrong| format!("{wrong}, or off")),
    }
}

impl Limits {
    /// Seconds until it pauses.
    pub(crate) fn auto_pause(&self) -> Option<u32> {
        seconds(self.auto_pause)
    }

    /// Whether it is never to pause.
    pub(crate) fn never_pauses(&self) -> Option<bool> {
        off(self.auto_pause)
    }

    /// Idle seconds until it is destroyed.
    pub(crate) fn auto_destroy(&self) -> Option<u32> {
        seconds(self.auto_destroy)
    }

    /// Whether it is never to be destroyed for idleness.
    pub(crate) fn never_destroys(&self) -> Option<bool> {
        off(self.auto_destroy)
    }

    /// Seconds of a new sandbox's life; without end when absent.
    pub(crate) fn lifetime(&self) -> Result<Option<u32>, Failure> {
        match seconds(self.lifetime) {
            Some(0) => Err(Failure::new("--lifetime must be at least 1s").with_hint("leave it out for no end")),
            given => Ok(given),
        }
    }

    /// Seconds from now to the end of a sandbox that there is; 0 takes an end away.
    pub(crate) fn changed_lifetime(&self) -> Result<Option<u32>, Failure> {
        if self.lifetime == Some(Limit::Off) { Ok(Some(0)) } else { self.lifetime() }
    }
}

fn seconds(limit: Option<Limit>) -> Option<u32> {
    match limit {
        Some(Limit::After(time)) => Some(u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
        Some(Limit::Off) | None => None,
    }
}

fn off(limit: Option<Limit>) -> Option<bool> {
    (limit == Some(Limit::Off)).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_duration_or_off() {
        assert_eq!(limit("10m"), Ok(Limit::After(Duration::from_secs(600))));
        assert_eq!(limit("off"), Ok(Limit::Off));
        let error = limit("soon").unwrap_err();
        assert!(error.ends_with("30s, 5m, 1h30m or 500ms, or off"), "{error}");
    }

    #[test]
    fn off_takes_an_end_away_from_what_is_there_and_is_the_default_of_what_is_new() {
        let limits = |lifetime| Limits { auto_pause: None, auto_destroy: Some(Limit::Off), lifetime };
        assert_eq!(limits(Some(Limit::Off)).changed_lifetime(), Ok(Some(0)));
        assert_eq!(limits(Some(Limit::Off)).lifetime(), Ok(None));
        assert!(limits(Some(Limit::After(Duration::from_millis(3)))).lifetime().is_err());
        assert_eq!((limits(None).never_destroys(), limits(None).never_pauses()), (Some(true), None));
    }
}
