//! What the kernel command line says to the agent: `hutch.base=`, `hutch.disk=`, `hutch.channel=`.

use std::path::PathBuf;

/// Devices of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Read-only EROFS root file system, shared by all sandboxes of its image.
    pub(crate) base: PathBuf,
    /// The sandbox's own ext4 disk.
    pub(crate) disk: PathBuf,
    /// The channel to the host.
    pub(crate) channel: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self { base: "/dev/ubdb".into(), disk: "/dev/ubdc".into(), channel: "/dev/hostchan".into() }
    }
}

impl Options {
    /// Reads a kernel command line; of an option given twice the last counts, as for the kernel's own.
    pub(crate) fn parse(command_line: &str) -> Self {
        let mut options = Self::default();
        for word in command_line.split_whitespace() {
            let Some((name, value)) = word.strip_prefix("hutch.").and_then(|word| word.split_once('=')) else {
                continue;
            };
            match name {
                "base" => options.base = value.into(),
                "disk" => options.disk = value.into(),
                "channel" => options.channel = value.into(),
                _ => crate::console::say(&format!("unknown option on the kernel command line: hutch.{name}")),
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_where_nothing_is_said() {
        assert_eq!(Options::parse("root=/dev/ubda init=/init quiet"), Options::default());
        let options =
            Options::parse("hutch.base=/dev/vda hutch.base=/dev/vdb hutch.channel=/dev/vport0p1 xhutch.disk=/x\n");
        assert_eq!(options.base, PathBuf::from("/dev/vdb"));
        assert_eq!(options.disk, Options::default().disk);
        assert_eq!(options.channel, PathBuf::from("/dev/vport0p1"));
    }
}
