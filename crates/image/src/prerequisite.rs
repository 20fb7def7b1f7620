//! What builds and disks need of the host, found or with the Debian package that brings it.

use std::env;
use std::path::{Path, PathBuf};

use crate::catalogue::Image;
use crate::debian::KEYRING;

/// Something that must be on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prerequisite {
    /// A program's name or a file's path.
    pub name: &'static str,
    /// What it is for, as the rest of a sentence that begins "needed".
    pub purpose: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
    /// Where it was found.
    pub found: Option<PathBuf>,
}

const EVERY: [(&str, &str, &str); 5] = [
    ("setpriv", "to end programs with the build that started them", "util-linux"),
    ("unshare", "to keep a build's processes and mounts apart", "util-linux"),
    ("chroot", "to run a recipe's scripts in its tree", "coreutils"),
    ("mkfs.erofs", "to pack images and the boot image", "erofs-utils"),
    ("mkfs.ext4", "to make the disks of sandboxes", "e2fsprogs"),
];

const DEBIAN: [(&str, &str, &str); 3] = [
    ("mmdebstrap", "to install Debian packages into an image", "mmdebstrap"),
    ("apt-get", "to find the Debian mirror and its packages", "apt"),
    (KEYRING, "to verify Debian packages", "debian-archive-keyring"),
];

const NPM: [(&str, &str, &str); 2] =
    [("npm", "to fetch Node, npm and Bun for an image", "npm"), ("tar", "to unpack what npm fetched", "tar")];

/// All that the images of the catalogue and the disks need.
pub fn prerequisites() -> Vec<Prerequisite> {
    [&EVERY[..], &DEBIAN, &NPM].concat().into_iter().map(look).collect()
}

impl Prerequisite {
    /// What this image needs and the host lacks.
    pub fn missing(image: &Image) -> Vec<Self> {
        let debian: &[_] = if image.recipe().suite.is_some() { &DEBIAN } else { &[] };
        let npm: &[_] = if image.recipe().npm.is_empty() { &[] } else { &NPM };
        let needed = [&EVERY[..], debian, npm].concat();
        needed.into_iter().map(look).filter(|prerequisite| prerequisite.found.is_none()).collect()
    }

    /// The command that brings it.
    pub fn fix(&self) -> String {
        format!("apt-get install {}", self.package)
    }

    /// Several as one text: their names and one command for all.
    pub(crate) fn sentence(all: &[Self]) -> String {
        let names: Vec<_> = all.iter().map(|one| one.name).collect();
        let mut packages: Vec<_> = all.iter().map(|one| one.package).collect();
        packages.dedup();
        format!("{}: apt-get install {}", names.join(", "), packages.join(" "))
    }
}

fn look((name, purpose, package): (&'static str, &'static str, &'static str)) -> Prerequisite {
    let path = env::var_os("PATH").unwrap_or_default();
    // mkfs.* lie in sbin, which the PATH of a user often lacks.
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = match name.starts_with('/') {
        true => Some(PathBuf::from(name)).filter(|path| path.is_file()),
        false => folders.map(|folder| folder.join(name)).find(|path| is_program(path)),
    };
    Prerequisite { name, purpose, package, found }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_what_is_not_has_a_fix() {
        assert!(look(("sh", "", "dash")).found.is_some());
        let missing = look(("hutch-no-such-program", "", "hutch"));
        assert_eq!(missing.found, None);
        assert_eq!(missing.fix(), "apt-get install hutch");
        let both = [missing.clone(), missing];
        let expected = "hutch-no-such-program, hutch-no-such-program: apt-get install hutch";
        assert_eq!(Prerequisite::sentence(&both), expected);
    }

    #[test]
    fn only_devbox_needs_npm() {
        let names: Vec<_> = prerequisites().iter().map(|one| one.name).collect();
        assert!(names.contains(&"npm") && names.contains(&"mkfs.erofs"));
        let debian = Image::find("debian:13").expect("in the catalogue");
        assert!(Prerequisite::missing(debian).iter().all(|one| one.name != "npm"));
    }
}
