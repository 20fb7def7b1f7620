//! Times on the wire.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

/// A moment in UTC with the resolution of a millisecond, written as RFC 3339 with no or exactly three digits of
/// fraction: older clients parse no other number of digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(OffsetDateTime);

impl Timestamp {
    /// The current time of the system's clock.
    pub fn now() -> Self {
        Self::from(OffsetDateTime::now_utc())
    }

    /// From milliseconds since 1970 in UTC; `None` outside of the years that RFC 3339 can write.
    pub fn from_unix_milliseconds(milliseconds: i64) -> Option<Self> {
        let nanoseconds = i128::from(milliseconds) * 1_000_000;
        let time = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()?;
        (0..=9999).contains(&time.year()).then_some(Self(time))
    }

    /// Reads RFC 3339, or a date (`2026-12-01`), which is its first moment in UTC.
    pub fn parse(text: &str) -> Option<Self> {
        let date = text.len() == 10;
        let whole = if date { format!("{text}T00:00:00Z") } else { text.to_owned() };
        OffsetDateTime::parse(&whole, &Rfc3339).ok().map(Self::from)
    }

    /// Milliseconds since 1970 in UTC.
    pub fn unix_milliseconds(self) -> i64 {
        i64::try_from(self.0.unix_timestamp_nanos() / 1_000_000).expect("the years 0 to 9999 fit")
    }
}

impl From<OffsetDateTime> for Timestamp {
    fn from(time: OffsetDateTime) -> Self {
        let time = time.to_offset(UtcOffset::UTC);
        let milliseconds = u32::from(time.millisecond());
        Self(time.replace_nanosecond(milliseconds * 1_000_000).expect("999 ms are less than a second"))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0;
        write!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            time.year(),
            u8::from(time.month()),
            time.day(),
            time.hour(),
            time.minute(),
            time.second()
        )?;
        match time.millisecond() {
            0 => out.write_str("Z"),
            milliseconds => write!(out, ".{milliseconds:03}Z"),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        OffsetDateTime::parse(&text, &Rfc3339).map(Self::from).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fraction_has_no_or_three_digits() {
        let text = |milliseconds| Timestamp::from_unix_milliseconds(milliseconds).unwrap().to_string();
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(1_700_000_000_070), "2023-11-14T22:13:20.070Z");
    }

    #[test]
    fn a_date_is_its_first_moment() {
        let moment = Timestamp::parse("2023-11-14").unwrap();
        assert_eq!(moment.to_string(), "2023-11-14T00:00:00Z");
        assert_eq!(Timestamp::parse("2023-11-14T01:00:00+01:00"), Some(moment));
        assert_eq!(Timestamp::parse("yesterday"), None);
        assert_eq!(Timestamp::parse("2023-02-30"), None);
    }

    proptest! {
        #[test]
        fn text_and_back(milliseconds in 0i64..253_402_300_799_999) {
            let time = Timestamp::from_unix_milliseconds(milliseconds).unwrap();
            let text = serde_json::to_string(&time).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), time);
            prop_assert_eq!(time.unix_milliseconds(), milliseconds);
        }
    }
}
