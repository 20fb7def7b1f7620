//! Text of the kernel's kind: any bytes.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path, a name or an argument: bytes that are usually UTF-8. On the wire a JSON string where they are and
/// `{"base64": "…"}` where they are not, so that no byte is lost and the usual case stays readable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteText(Vec<u8>);

impl ByteText {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as a part of a path.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The bytes as a path.
    pub fn as_path(&self) -> &std::path::Path {
        self.as_os_str().as_ref()
    }

    /// The text, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The bytes themselves.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl<T: Into<Vec<u8>>> From<T> for ByteText {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for ByteText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.0.escape_ascii().to_string())
    }
}

impl fmt::Display for ByteText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(out)
    }
}

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.as_str() {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("base64", &STANDARD.encode(&self.0))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteTextVisitor)
    }
}

struct ByteTextVisitor;

impl<'de> Visitor<'de> for ByteTextVisitor {
    type Value = ByteText;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string or {\"base64\": string}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteText, E> {
        Ok(text.into())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<ByteText, E> {
        Ok(text.into())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ByteText, M::Error> {
        let mut bytes = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "base64" {
                bytes = Some(base64_bytes::decode(&map.next_value::<String>()?)?);
            } else {
                map.next_value::<de::IgnoredAny>()?;
            }
        }
        bytes.map(ByteText).ok_or_else(|| de::Error::missing_field("base64"))
    }
}

/// `#[serde(with = "base64_bytes")]` for a field of bytes that are never text.
pub(crate) mod base64_bytes {
    use base64::Engine as _;

    use super::{Deserialize, Deserializer, STANDARD, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::display::Base64Display::new(bytes, &STANDARD))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        decode(&String::deserialize(deserializer)?)
    }

    pub(crate) fn decode<E: de::Error>(text: &str) -> Result<Vec<u8>, E> {
        STANDARD.decode(text).map_err(|error| E::custom(format_args!("not base64: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_stays_readable() {
        assert_eq!(serde_json::to_string(&ByteText::from("naïve\n")).unwrap(), "\"naïve\\n\"");
        assert_eq!(serde_json::to_string(&ByteText::from(vec![0xff, 0])).unwrap(), r#"{"base64":"/wA="}"#);
        assert!(serde_json::from_str::<ByteText>(r#"{"base64":"*"}"#).is_err());
        assert!(serde_json::from_str::<ByteText>("7").is_err());
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(bytes in any::<Vec<u8>>()) {
            let text = ByteText::from(bytes);
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<ByteText>(&json).unwrap(), text);
        }
    }
}
