//! The kernel's source: which package, and how it gets here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::archive::{self, Archive, Offer};
use super::key;

/// The package that this tree was made for: `guest/kernel/source.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pin {
    package: String,
    version: String,
    sha256: String,
    /// Steps of its build, about: the end of the scale that progress is shown on.
    pub(super) steps: usize,
}

impl Pin {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not what it should be", path.display()))
    }
}

/// Where the source is to come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The pinned package, or the newest if the archive has it no more.
    Archive { offer: Offer, sha256: String },
    /// A package on this machine.
    File { path: PathBuf, sha256: String },
    /// A package at an address.
    Address { url: String, sha256: String },
}

/// A package on this machine.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) path: PathBuf,
    /// In hexadecimal.
    pub(super) sha256: String,
}

impl Source {
    /// What the command line asks for, or else the pin.
    pub(super) fn wanted(source: Option<&str>, sha256: Option<&str>, pin: &Pin) -> Result<Self> {
        let sha256 = sha256.unwrap_or(&pin.sha256).to_ascii_lowercase();
        if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            bail!("--sha256 is {sha256}: expected 64 hexadecimal digits");
        }
        Ok(match source {
            None => {
                let offer = Offer { package: pin.package.clone(), version: pin.version.clone() };
                Self::Archive { offer, sha256 }
            }
            Some(url) if url.contains("://") => Self::Address { url: url.to_owned(), sha256 },
            Some(path) => Self::File { path: PathBuf::from(path), sha256 },
        })
    }

    fn sha256(&self) -> &str {
        match self {
            Self::Archive { sha256, .. } | Self::File { sha256, .. } | Self::Address { sha256, .. } => sha256,
        }
    }
}

/// The package, from the cache if it has it.
pub(super) fn obtain(source: &Source, cache: &Path) -> Result<Package> {
    let directory = cache.join("source");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let kept = |sha256: &str| directory.join(format!("{sha256}.deb"));
    let path = kept(source.sha256());
    if path.exists() {
        return checked(path, source.sha256());
    }
    match source {
        Source::File { path, sha256 } => checked(path.clone(), sha256),
        Source::Address { url, sha256 } => {
            eprintln!("kernel: downloading {url}");
            let partial = directory.join("partial.deb");
            let digest = format!("SHA256:{sha256}");
            let status = Command::new("/usr/lib/apt/apt-helper")
                .args(["-qq", "download-file", url])
                .args([partial.as_os_str(), digest.as_ref()])
                .status()
                .context("cannot run apt-helper")?;
            if !status.success() {
                bail!("cannot download {url}");
            }
            keep(&partial, &path)?;
            checked(path, sha256)
        }
        Source::Archive { offer, sha256 } => {
            let archive = Archive::open(&cache.join("apt"))?;
            let offers = archive.offers()?;
            if offers.contains(offer) {
                let downloaded = archive.download(offer)?;
                let package = checked(downloaded, sha256)?;
                keep(&package.path, &path)?;
                return Ok(Package { path, ..package });
            }
            let newest =
                archive::newest(&offers).context("Debian's archive offers no kernel source of 7.2 or newer")?;
            eprintln!(
                "kernel: {} {} is no longer in Debian's archive; taking {} {}, to which the patches may not apply",
                offer.package, offer.version, newest.package, newest.version
            );
            // Its digest is not ours but that of the signed lists, against which apt has checked it.
            let downloaded = archive.download(newest)?;
            let sha256 = key::file_sha256(&downloaded)?;
            let path = kept(&sha256);
            keep(&downloaded, &path)?;
            Ok(Package { path, sha256 })
        }
    }
}

fn keep(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

fn checked(path: PathBuf, sha256: &str) -> Result<Package> {
    let found = key::file_sha256(&path)?;
    if found != sha256 {
        bail!("{} has the SHA-256 {found}, expected {sha256}; remove it if it is damaged", path.display());
    }
    Ok(Package { path, sha256: found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin() -> Pin {
        Pin {
            package: "linux-source-7.2".to_owned(),
            version: "7.2.13-1".to_owned(),
            sha256: "ab".repeat(32),
            steps: 1,
        }
    }

    #[test]
    fn the_command_line_wins_over_the_pin() {
        let digest = "CD".repeat(32);
        let lower = digest.to_lowercase();
        let archive = Source::wanted(None, None, &pin()).expect("the pin is sound");
        assert_eq!(archive.sha256(), "ab".repeat(32));
        let file = Source::wanted(Some("/srv/x.deb"), Some(&digest), &pin()).expect("a path");
        assert_eq!(file, Source::File { path: PathBuf::from("/srv/x.deb"), sha256: lower.clone() });
        let address = Source::wanted(Some("https://m.example/x.deb"), Some(&digest), &pin()).expect("an address");
        assert_eq!(address, Source::Address { url: "https://m.example/x.deb".to_owned(), sha256: lower });
    }

    #[test]
    fn a_digest_that_is_none_is_refused() {
        let error = Source::wanted(Some("/srv/x.deb"), Some("12"), &pin()).expect_err("too short");
        assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
    }

    #[test]
    fn the_pin_of_this_tree_can_be_read() {
        let pin = Pin::read(&super::super::recipe_directory().join("source.json")).expect("source.json");
        let source = Source::wanted(None, None, &pin).expect("the pin is sound");
        assert_eq!(source.sha256(), pin.sha256);
    }
}
