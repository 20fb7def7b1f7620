//! JSON bodies: an error says where.

use serde::de::DeserializeOwned;

use crate::{Error, ErrorKind};

/// Reads a JSON body. The error names the line, the column and, when the text is JSON but not what was asked for, the
/// field.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::field("body", "is empty, expected a JSON object"));
    }
    // The derived code would also read a list of values in the order of the fields.
    if text.trim_ascii_start().starts_with(b"[") {
        return Err(Error::field("body", "is a JSON list, expected a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        let path = missing_field(&error.to_string()).map_or(path.clone(), |field| join(&path, field));
        if error.is_data() && path != "." { Error::field(path, error.to_string()) } else { syntax(&error) }
    })?;
    deserializer.end().map_err(|error| syntax(&error))?;
    Ok(value)
}

/// The name in "missing field `name` at line …", the one message that does not come with the field's path.
fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

fn join(path: &str, field: &str) -> String {
    if path == "." { field.to_owned() } else { format!("{path}.{field}") }
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
        assert_eq!(
            message(r#"{"shape":"a","disks":[{"disk_id":"d"}]}"#),
            "disks[0].mount_path: missing field `mount_path` at line 1 column 37"
        );
        assert_eq!(
            message(r#"{"shape":"a","disk_mib":"big"}"#),
            "disk_mib: invalid type: string \"big\", expected u32 at line 1 column 29"
        );
        assert_eq!(
            message(r#"{"shape":"a","disks":[{"disk_id":"d","mount_path":7}]}"#),
            "disks[0].mount_path: invalid type: integer `7`, expected a string at line 1 column 51"
        );
        assert_eq!(message("[]"), "body: is a JSON list, expected a JSON object");
    }

    #[test]
    fn null_means_the_default_and_unknown_fields_are_passed_over() {
        let text = br#"{"shape":"a","egress":null,"envs":null,"rootfs":null,"future":[1]}"#;
        assert_eq!(parse::<CreateSandbox>(text).unwrap(), CreateSandbox { shape: "a".into(), ..Default::default() });
    }
}
