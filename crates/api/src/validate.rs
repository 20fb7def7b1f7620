//! What can be said about a request without knowing the state of the service. Adapters call this, so that an
//! implementation of [`Operations`](crate::Operations) sees only requests that keep to these rules.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hutch_units::{SandboxName, SnapshotName};

use crate::{
    CreateSandbox, CreateSnapshot, Error, Execute, ForkSandbox, GuestPath, MakeDirectory, Period, SnapshotReference,
    UpdateSandbox,
};

const MAX_VARIABLES: usize = 64;
const MAX_VALUE_BYTES: usize = 4096;
const MAX_VARIABLES_BYTES: usize = 64 << 10;
const MAX_LABELS: usize = 64;
const MIN_IDLE_SECONDS: u32 = 60;
const MAX_AUTO_PAUSE_SECONDS: u32 = 86400;
const MAX_LIFETIME_SECONDS: u32 = 365 * 24 * 3600;

impl CreateSandbox {
    /// Checks the rules and turns what means "absent" (an empty name, a disk of size 0) into `None`.
    pub(crate) fn validate(&mut self) -> Result<(), Error> {
        let Self { rootfs, name, engine, host_id, region, snapshot, .. } = self;
        for text in [rootfs, name, engine, host_id, region, snapshot] {
            text.take_if(|text| text.is_empty());
        }
        match &self.snapshot {
            Some(snapshot) => drop(SnapshotReference::parse(snapshot)?),
            None if self.shape.is_empty() => {
                return Err(Error::field(
                    "shape",
                    "is missing: give the id of a shape (GET /v1/shapes), or a snapshot",
                ));
            }
            None => {}
        }
        self.disk_mib.take_if(|size| *size == 0);
        if let Some(name) = &self.name {
            SandboxName::parse(name).map_err(|error| Error::field("name", error.to_string()))?;
        }
        if self.bandwidth_quota_bytes.is_some_and(|bytes| bytes != 0) {
            return Err(Error::field("bandwidth_quota_bytes", "must be 0 or absent at create"));
        }
        environment(&self.envs)?;
        for (position, disk) in self.disks.iter().enumerate() {
            GuestPath::parse(&format!("disks[{position}].mount_path"), &disk.mount_path)?;
            let inside = |path: &String| !path.starts_with('/') && !path.split('/').any(|part| part == "..");
            if !disk.sub_path.as_ref().is_none_or(inside) {
                let field = format!("disks[{position}].sub_path");
                return Err(Error::field(field, "must be a relative path without .."));
            }
        }
        idle(self.auto_pause_after_seconds, self.auto_destroy_after_seconds)?;
        labels(&self.labels)?;
        if let Some(key) = &self.idempotency_key {
            length("idempotency_key", key, 1, 255)?;
        }
        first_lifetime(self.lifetime_seconds)
    }
}

impl UpdateSandbox {
    /// Checks the rules.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        idle(self.auto_pause_after_seconds, self.auto_destroy_after_seconds)?;
        one_of("auto_pause_after_seconds", self.auto_pause_after_seconds, self.disable_auto_pause)?;
        one_of("auto_destroy_after_seconds", self.auto_destroy_after_seconds, self.disable_auto_destroy)?;
        self.labels.as_ref().map_or(Ok(()), labels)?;
        lifetime(self.lifetime_seconds)
    }
}

impl ForkSandbox {
    /// Checks the rules and turns an empty name, which means "absent", into `None`.
    pub(crate) fn validate(&mut self) -> Result<(), Error> {
        self.name.take_if(|name| name.is_empty());
        match self.count {
            Some(count) if !(1..=Self::MAX_COUNT).contains(&count) => {
                return Err(Error::field("count", format!("must be 1 to {}, got {count}", Self::MAX_COUNT)));
            }
            _ => {}
        }
        // The last name is the longest.
        if let Some(name) = self.name_of(self.copies() - 1) {
            SandboxName::parse(&name).map_err(|error| Error::field("name", format!("{name:?}: {error}")))?;
        }
        if self.bandwidth_quota_bytes.is_some_and(|bytes| bytes != 0) {
            return Err(Error::field("bandwidth_quota_bytes", "must be 0 or absent at fork"));
        }
        self.envs.as_ref().map_or(Ok(()), environment)?;
        self.labels.as_ref().map_or(Ok(()), labels)?;
        idle(self.auto_pause_after_seconds, self.auto_destroy_after_seconds)?;
        one_of("auto_pause_after_seconds", self.auto_pause_after_seconds, self.disable_auto_pause)?;
        one_of("auto_destroy_after_seconds", self.auto_destroy_after_seconds, self.disable_auto_destroy)?;
        first_lifetime(self.lifetime_seconds)
    }
}

impl CreateSnapshot {
    /// Checks the rules and turns an empty name, which means "absent", into `None`.
    pub(crate) fn validate(&mut self) -> Result<(), Error> {
        self.name.take_if(|name| name.is_empty());
        self.description.take_if(|text| text.is_empty());
        if let Some(name) = &self.name {
            SnapshotName::parse(name).map_err(|error| Error::field("name", error.to_string()))?;
        }
        if let Some(text) = &self.description {
            length("description", text, 0, 255)?;
        }
        labels(&self.labels)
    }
}

impl Period {
    /// Checks the rules.
    pub(crate) fn validate(self) -> Result<(), Error> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if from > to => {
                Err(Error::field("to", format!("{to} lies before from, which is {from}")))
            }
            _ => Ok(()),
        }
    }
}

impl Execute {
    /// The standard input as bytes, whichever way it was given; `None` when it was not.
    ///
    /// # Errors
    /// When `stdin_base64` is no base64, or both ways were used.
    pub fn stdin_bytes(&self) -> Result<Option<Bytes>, Error> {
        match (&self.stdin, &self.stdin_base64) {
            (Some(_), Some(_)) => Err(Error::field("stdin_base64", "not together with stdin; give one of them")),
            (Some(text), None) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
            (None, Some(text)) => {
                let wrong = |error: base64::DecodeError| Error::field("stdin_base64", error.to_string());
                STANDARD.decode(text).map(|bytes| Some(bytes.into())).map_err(wrong)
            }
            (None, None) => Ok(None),
        }
    }

    /// Checks the rules.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.cmd.is_empty() {
            return Err(Error::field("cmd", "is empty; give the program to run"));
        }
        no_nul("cmd", &self.cmd)?;
        for (position, argument) in self.args.iter().enumerate() {
            no_nul(&format!("args[{position}]"), argument)?;
        }
        variables("env", &self.env)?;
        if let Some(directory) = &self.cwd {
            GuestPath::parse("cwd", directory)?;
        }
        if let Some(user) = &self.user {
            length("user", user, 1, 64)?;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            if !user.bytes().all(plain) {
                return Err(Error::field("user", "must be a user's name or number"));
            }
        }
        match self.timeout_ms {
            Some(time) if !(1..=Self::MAX_TIMEOUT_MS).contains(&time) => {
                let message = format!("must be 1 to {} (a week), got {time}", Self::MAX_TIMEOUT_MS);
                return Err(Error::field("timeout_ms", message));
            }
            _ => {}
        }
        self.stdin_bytes().map(drop)
    }
}

impl MakeDirectory {
    /// Checks the rules.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        match self.mode {
            Some(mode) if mode > 0o7777 => {
                Err(Error::field("mode", format!("must be permission bits, 0 to 4095, got {mode}")))
            }
            _ => Ok(()),
        }
    }
}

fn environment(envs: &BTreeMap<String, String>) -> Result<(), Error> {
    variables("envs", envs)?;
    if envs.len() > MAX_VARIABLES {
        return Err(Error::field("envs", format!("has {} entries, the most is {MAX_VARIABLES}", envs.len())));
    }
    Ok(())
}

fn variables(field: &str, variables: &BTreeMap<String, String>) -> Result<(), Error> {
    let mut total = 0;
    for (key, value) in variables {
        let shown: String = key.chars().take(64).collect();
        let first = key.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        if !first || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            let message =
                format!("{shown:?} is no name of a variable: letters, digits and _, not beginning with a digit");
            return Err(Error::field(field, message));
        }
        let field = format!("{field}.{shown}");
        no_nul(&field, value)?;
        if value.len() > MAX_VALUE_BYTES {
            let message = format!("has {} bytes, a value has at most {MAX_VALUE_BYTES}", value.len());
            return Err(Error::field(field, message));
        }
        total += key.len() + value.len();
    }
    if total > MAX_VARIABLES_BYTES {
        return Err(Error::field(field, format!("has {total} bytes in all, the most is {MAX_VARIABLES_BYTES}")));
    }
    Ok(())
}

fn labels(labels: &BTreeMap<String, String>) -> Result<(), Error> {
    if labels.len() > MAX_LABELS {
        return Err(Error::field("labels", format!("has {} entries, the most is {MAX_LABELS}", labels.len())));
    }
    for (key, value) in labels {
        let shown: String = key.chars().take(64).collect();
        let field = format!("labels.{shown}");
        length(&field, key, 1, 63)?;
        if key.contains('=') || key.chars().any(char::is_control) {
            return Err(Error::field(field, "a label's key has no = and no control characters"));
        }
        length(&field, value, 0, 255)?;
    }
    Ok(())
}

fn idle(pause: Option<u32>, destroy: Option<u32>) -> Result<(), Error> {
    let check = |field: &str, seconds: Option<u32>, most: u32| match seconds {
        Some(seconds) if !(MIN_IDLE_SECONDS..=most).contains(&seconds) => {
            Err(Error::field(field, format!("must be {MIN_IDLE_SECONDS} to {most}, got {seconds}")))
        }
        _ => Ok(()),
    };
    check("auto_pause_after_seconds", pause, MAX_AUTO_PAUSE_SECONDS)?;
    check("auto_destroy_after_seconds", destroy, MAX_LIFETIME_SECONDS)
}

fn one_of(field: &str, seconds: Option<u32>, disable: Option<bool>) -> Result<(), Error> {
    if seconds.is_some() && disable == Some(true) {
        let other = field.replace("_after_seconds", "");
        return Err(Error::field(format!("disable_{other}"), format!("contradicts {field}; give one of them")));
    }
    Ok(())
}

fn first_lifetime(seconds: Option<u32>) -> Result<(), Error> {
    match seconds {
        Some(0) => Err(Error::field("lifetime_seconds", "must be at least 1; leave it out for no end")),
        given => lifetime(given),
    }
}

fn lifetime(seconds: Option<u32>) -> Result<(), Error> {
    match seconds {
        Some(seconds) if seconds > MAX_LIFETIME_SECONDS => {
            Err(Error::field("lifetime_seconds", format!("must be at most {MAX_LIFETIME_SECONDS}, got {seconds}")))
        }
        _ => Ok(()),
    }
}

fn length(field: &str, text: &str, least: usize, most: usize) -> Result<(), Error> {
    let count = text.chars().count();
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(Error::field(field, format!("has {count} characters, must have {least} to {most}")))
}

fn no_nul(field: &str, text: &str) -> Result<(), Error> {
    if text.contains('\0') { Err(Error::field(field, "contains a NUL character")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskMount;

    fn create(change: impl FnOnce(&mut CreateSandbox)) -> Result<CreateSandbox, String> {
        let mut request = CreateSandbox { shape: "s-1vcpu-256mb".into(), ..Default::default() };
        change(&mut request);
        request.validate().map_err(|error| error.message.into_owned())?;
        Ok(request)
    }

    fn execute(change: impl FnOnce(&mut Execute)) -> String {
        let mut request = Execute { cmd: "true".into(), ..Default::default() };
        change(&mut request);
        request.validate().map_or_else(|error| error.message.into_owned(), |()| "ok".to_owned())
    }

    #[test]
    fn what_means_absent_becomes_absent() {
        let request = create(|request| {
            request.name = Some(String::new());
            request.rootfs = Some(String::new());
            request.disk_mib = Some(0);
            request.bandwidth_quota_bytes = Some(0);
        });
        let request = request.unwrap();
        assert_eq!((request.name, request.rootfs, request.disk_mib), (None, None, None));
    }

    #[test]
    fn a_create_that_breaks_a_rule_names_the_field() {
        let refused = |start: &str, change: fn(&mut CreateSandbox)| {
            let message = create(change).unwrap_err();
            assert!(message.starts_with(start), "{message}");
        };
        refused("name: a name has only", |request| request.name = Some("Up".into()));
        refused("envs: \"1X\" is no name", |request| drop(request.envs.insert("1X".into(), String::new())));
        refused("envs: \"\" is no name", |request| drop(request.envs.insert(String::new(), String::new())));
        refused("envs.X: has 4097 bytes", |request| drop(request.envs.insert("X".into(), "x".repeat(4097))));
        refused("envs.X: contains a NUL", |request| drop(request.envs.insert("X".into(), "\0".into())));
        refused("envs: has 65 entries", |request| {
            request.envs = (0..65).map(|number| (format!("X{number}"), String::new())).collect();
        });
        refused("envs: has 65", |request| {
            request.envs = (0..16).map(|number| (format!("X{number}"), "x".repeat(4096))).collect();
        });
        refused("auto_pause_after_seconds: must be 60", |request| request.auto_pause_after_seconds = Some(59));
        refused("bandwidth_quota_bytes: must be 0", |request| request.bandwidth_quota_bytes = Some(1));
        refused("labels.a=b: a label's key", |request| drop(request.labels.insert("a=b".into(), String::new())));
        refused("idempotency_key: has 0", |request| request.idempotency_key = Some(String::new()));
        refused("auto_destroy_after_seconds: must be 60", |request| request.auto_destroy_after_seconds = Some(59));
        refused("shape: is missing", |request| request.shape.clear());
        refused("there is no snapshot \"No\"", |request| request.snapshot = Some("No".into()));
        refused("lifetime_seconds: must be at least 1", |request| request.lifetime_seconds = Some(0));
        refused("disks[0].sub_path: must be", |request| {
            let sub_path = Some("a/../..".into());
            request.disks = vec![DiskMount { disk_id: "d".into(), mount_path: "/d".into(), sub_path }];
        });
    }

    #[test]
    fn a_snapshot_stands_for_a_shape() {
        let request = create(|request| {
            request.shape.clear();
            request.snapshot = Some("clean-v1.2".into());
        });
        assert_eq!(request.unwrap().snapshot.as_deref(), Some("clean-v1.2"));
    }

    #[test]
    fn a_fork_that_breaks_a_rule_names_the_field() {
        let refused = |start: &str, mut request: ForkSandbox| {
            let message = request.validate().unwrap_err().message;
            assert!(message.starts_with(start), "{message}");
        };
        let fork = ForkSandbox::default;
        assert!(fork().validate().is_ok());
        refused("count: must be 1 to 100, got 0", ForkSandbox { count: Some(0), ..fork() });
        refused("count: must be 1 to 100, got 101", ForkSandbox { count: Some(101), ..fork() });
        let long = Some("a".repeat(61));
        assert!(ForkSandbox { name: long.clone(), count: Some(9), ..fork() }.validate().is_ok());
        refused("name: \"aaa", ForkSandbox { name: long, count: Some(10), ..fork() });
        let both = ForkSandbox { auto_destroy_after_seconds: Some(60), disable_auto_destroy: Some(true), ..fork() };
        refused("disable_auto_destroy: contradicts auto_destroy_after_seconds", both);
        refused("bandwidth_quota_bytes: ", ForkSandbox { bandwidth_quota_bytes: Some(1), ..fork() });
        refused("envs: \"-\" is no", ForkSandbox { envs: Some([("-".into(), String::new())].into()), ..fork() });
    }

    #[test]
    fn an_execute_that_breaks_a_rule_names_the_field() {
        assert_eq!(execute(|_| {}), "ok");
        assert!(execute(|request| request.cmd = String::new()).starts_with("cmd: is empty"));
        assert!(execute(|request| request.args = vec!["a\0".into()]).starts_with("args[0]: contains a NUL"));
        assert!(execute(|request| request.cwd = Some("tmp".into())).starts_with("cwd: must be an absolute path"));
        assert!(execute(|request| request.user = Some("a b".into())).starts_with("user: must be a user's name"));
        assert!(execute(|request| request.timeout_ms = Some(0)).starts_with("timeout_ms: must be 1"));
        assert!(execute(|request| request.stdin_base64 = Some("?".into())).starts_with("stdin_base64: "));
        let both = execute(|request| (request.stdin, request.stdin_base64) = (Some("a".into()), Some("YQ==".into())));
        assert!(both.starts_with("stdin_base64: not together"));
    }
}
