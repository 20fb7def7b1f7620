//! JSON bodies: an error says where.

use serde::de::DeserializeOwned;

use crate::{Error, ErrorKind};

/// Reads a JSON body. The error names the line, the column and, when the text is JSON but not what was asked for, the
/// field.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::field("body", "is empty, expected a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if error.is_data() && path != "." { Error::field(path, error.to_string()) } else { syntax(&error) }
    })?;
    deserializer.end().map_err(|error| syntax(&error))?;
    Ok(value)
}

fn syntax(error: &serde_json::Error) -> Error {
    let what = if error.is_data() { "unexpected JSON" } else { "invalid JSON" };
    Error::new(ErrorKind::InvalidRequest, format!("{what}: {error}")).with_field("body", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CreateSandbox;

    fn message(text: &str) -> String {
        parse::<CreateSandbox>(text.as_bytes()).unwrap_err().message.into_owned()
    }

    #[test]
    fn an_error_says_where() {
        assert_eq!(message(" \n"), "body: is empty, expected a JSON object");
        assert_eq!(message("{\n  \"shape\": oops"), "invalid JSON: expected value at line 2 column 12");
        assert_eq!(message("{\"shape\":\"a\"} x"), "invalid JSON: trailing characters at line 1 column 15");
        assert_eq!(message("{}"), "unexpected JSON: missing field `shape` at line 1 column 2");
        assert_eq!(
            message(r#"{"shape":"a","disk_mib":"big"}"#),
            "disk_mib: invalid type: string \"big\", expected u32 at line 1 column 29"
        );
        assert_eq!(
            message(r#"{"shape":"a","disks":[{"disk_id":"d","mount_path":7}]}"#),
            "disks[0].mount_path: invalid type: integer `7`, expected a string at line 1 column 51"
        );
        assert_eq!(
            message("[]"),
            "unexpected JSON: invalid length 0, expected struct CreateSandbox at line 1 column 2"
        );
    }

    #[test]
    fn null_means_the_default_and_unknown_fields_are_passed_over() {
        let text = br#"{"shape":"a","egress":null,"envs":null,"rootfs":null,"future":[1]}"#;
        assert_eq!(parse::<CreateSandbox>(text).unwrap(), CreateSandbox { shape: "a".into(), ..Default::default() });
    }
}
