//! The guest's name, in the kernel and in the files that name it.

use std::fs;
use std::io;

use hutch_protocol::{Code, Failure};

/// Checks a host name: 1 to 63 of letters, digits, `-`, and `.`, as the kernel and resolvers take it.
pub(crate) fn check(name: &str) -> Result<(), Failure> {
    let fits = (1..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    if fits {
        return Ok(());
    }
    let message = format!("hostname {name:?}: it must have 1 to 63 of letters, digits, '-' and '.'");
    Err(Failure::new(Code::InvalidRequest, message))
}

/// Gives the guest its name. Files that cannot be written leave the name valid in the kernel.
pub(crate) fn set(name: &str) -> io::Result<()> {
    rustix::system::sethostname(name.as_bytes())?;
    write_if_other("/etc/hostname", &format!("{name}\n"));
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    write_if_other("/etc/hosts", &hosts_with(&hosts, name));
    Ok(())
}

/// Writing what is there already would copy the file to the sandbox's disk for nothing.
fn write_if_other(path: &str, content: &str) {
    if fs::read(path).is_ok_and(|present| present == content.as_bytes()) {
        return;
    }
    if let Err(error) = fs::write(path, content) {
        crate::console::say(&format!("{path} could not be written: {error}"));
    }
}

/// The file with an entry for the name; what users wrote into it stays.
fn hosts_with(hosts: &str, name: &str) -> String {
    let own = format!("127.0.1.1\t{name}");
    if hosts.trim().is_empty() {
        return format!("127.0.0.1\tlocalhost\n{own}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    }
    let mut found = false;
    let mut lines: Vec<&str> = hosts
        .lines()
        .map(|line| {
            if line.split_whitespace().next() != Some("127.0.1.1") || found {
                return line;
            }
            found = true;
            &own
        })
        .collect();
    if !found {
        lines.push(&own);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for name in ["", "a b", "a_b", "é", &"a".repeat(64)] {
            assert!(check(name).is_err(), "{name:?}");
        }
        assert!(check("quick-otter.example").is_ok());
    }

    #[test]
    fn only_the_own_line_changes() {
        let fresh = hosts_with("", "one");
        assert!(fresh.contains("127.0.0.1\tlocalhost\n127.0.1.1\tone\n::1\tlocalhost"));
        assert_eq!(hosts_with(&fresh, "one"), fresh);
        let edited = format!("# mine\n{fresh}10.0.0.1 other");
        assert_eq!(hosts_with(&edited, "two"), format!("{}\n", edited.replace("\tone", "\ttwo")));
        assert_eq!(hosts_with("10.0.0.1 x\n", "two"), "10.0.0.1 x\n127.0.1.1\ttwo\n");
    }
}
