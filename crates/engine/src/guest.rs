//! The guest directory: the kernel and the boot image that every sandbox of this build starts from.

use std::env;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The guest files, found and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFiles {
    /// The directory they are in.
    pub directory: PathBuf,
    /// The user-mode kernel, a static program.
    pub kernel: PathBuf,
    /// The boot image with the agent, an EROFS file.
    pub boot_image: PathBuf,
    /// What `guest.json` says.
    pub manifest: GuestManifest,
}

/// `guest.json`: what the directory holds. `format` and `version` can be read without knowing the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestManifest {
    /// Always [`GuestManifest::FORMAT`].
    pub format: String,
    /// [`GuestManifest::VERSION`] of the writer.
    pub version: u32,
    /// The kernel's release, as `uname -r` in the guest.
    pub kernel_release: String,
    /// SHA-256 of the kernel, hexadecimal.
    pub kernel_digest: String,
    /// SHA-256 of the boot image, hexadecimal.
    pub boot_image_digest: String,
}

/// Why there are no usable guest files.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// None of the places where they are looked for has them.
    #[error(
        "no guest kernel was found in {}; build it with `cargo xtask guest`, or name its directory with \
        `--guest` or HUTCH_GUEST",
        list(places)
    )]
    NotFound {
        /// Where was looked.
        places: Vec<PathBuf>,
    },
    /// A file of the directory is not there or cannot be read.
    #[error("{} cannot be read; `cargo xtask guest` builds it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `guest.json` is not what it should be.
    #[error("{} is no description of guest files; `cargo xtask guest` writes it anew", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// `guest.json` is of another format or version.
    #[error("{} has format {format:?} version {version}, this program reads {} version {}; build the guest of \
        this release with `cargo xtask guest`", path.display(), GuestManifest::FORMAT, GuestManifest::VERSION)]
    Version {
        /// The file.
        path: PathBuf,
        /// The format it says.
        format: String,
        /// The version it says.
        version: u32,
    },
    /// The guest could not be kept for machines that were saved with it.
    #[error("{} cannot be written", path.display())]
    Keep {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file is not the one that `guest.json` describes.
    #[error("{} has SHA-256 {found}, guest.json says {expected}; build it again with `cargo xtask guest`",
        path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// The digest that `guest.json` gives.
        expected: String,
        /// The digest of the file.
        found: String,
    },
}

impl GuestManifest {
    /// The magic.
    pub const FORMAT: &'static str = "hutch-guest";
    /// The version that this program writes and reads.
    pub const VERSION: u32 = 1;
}

/// What any version of `guest.json` has.
#[derive(Debug, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl GuestFiles {
    /// Name of the kernel's file.
    pub const KERNEL: &'static str = "linux-um";
    /// Name of the boot image's file.
    pub const BOOT_IMAGE: &'static str = "boot.erofs";
    /// Name of the description.
    pub const MANIFEST: &'static str = "guest.json";

    /// Finds the guest files: in `given` when one is given, else in the directory that HUTCH_GUEST names, else
    /// beside the running program, else in `/usr/lib/hutch/guest`. Checks their digests, which reads them whole.
    ///
    /// # Errors
    /// Says which places were searched, or what is wrong with the first that has a `guest.json`.
    pub fn find(given: Option<&Path>) -> Result<Self, GuestError> {
        Self::open(&find_directory(given)?)
    }

    /// Finds the guest files, and holds them: `kernel` and `boot_image` stay these files, whatever an upgrade puts in
    /// their place, for as long as the second value lives.
    ///
    /// # Errors
    /// As [`GuestFiles::find`].
    pub(crate) fn hold(given: Option<&Path>) -> Result<(Self, [File; 2]), GuestError> {
        let directory = find_directory(given)?;
        let open = |name| {
            let path = directory.join(name);
            File::open(&path).map_err(|source| GuestError::Read { path, source })
        };
        let held = [open(Self::KERNEL)?, open(Self::BOOT_IMAGE)?];
        // The launcher is another process.
        let by_descriptor = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        let [kernel, boot_image] = held.each_ref().map(by_descriptor);
        Ok((Self::check(&directory, kernel, boot_image)?, held))
    }

    /// Reads the guest files of one directory and checks their digests.
    ///
    /// # Errors
    /// Says which file is missing, unreadable or not what `guest.json` describes.
    pub fn open(directory: &Path) -> Result<Self, GuestError> {
        // The launcher is told absolute paths only.
        let directory =
            std::path::absolute(directory).map_err(|source| GuestError::Read { path: directory.to_owned(), source })?;
        let (kernel, boot_image) = (directory.join(Self::KERNEL), directory.join(Self::BOOT_IMAGE));
        Self::check(&directory, kernel, boot_image)
    }

    fn check(directory: &Path, kernel: PathBuf, boot_image: PathBuf) -> Result<Self, GuestError> {
        let path = directory.join(Self::MANIFEST);
        let text = std::fs::read(&path).map_err(|source| GuestError::Read { path: path.clone(), source })?;
        let manifest = parse_manifest(&path, &text)?;
        check_digest(&kernel, &manifest.kernel_digest)?;
        check_digest(&boot_image, &manifest.boot_image_digest)?;
        Ok(Self { directory: directory.to_owned(), kernel, boot_image, manifest })
    }
}

fn find_directory(given: Option<&Path>) -> Result<PathBuf, GuestError> {
    let places = places(given);
    let found = places.iter().find(|place| place.join(GuestFiles::MANIFEST).exists());
    found.cloned().ok_or(GuestError::NotFound { places })
}

/// SHA-256 of a file, hexadecimal.
///
/// # Errors
/// When the file cannot be read.
pub fn digest_of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => hash.update(buffer.get(..length).unwrap_or_default()),
        }
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    Ok(text)
}

fn places(given: Option<&Path>) -> Vec<PathBuf> {
    if let Some(given) = given {
        return vec![given.to_owned()];
    }
    if let Some(named) = env::var_os("HUTCH_GUEST").filter(|named| !named.is_empty()) {
        return vec![PathBuf::from(named)];
    }
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.join("guest")));
    beside.into_iter().chain([PathBuf::from("/usr/lib/hutch/guest")]).collect()
}

fn parse_manifest(path: &Path, text: &[u8]) -> Result<GuestManifest, GuestError> {
    let error = |source| GuestError::Manifest { path: path.to_owned(), source };
    let Header { format, version } = serde_json::from_slice(text).map_err(error)?;
    if format != GuestManifest::FORMAT || version != GuestManifest::VERSION {
        return Err(GuestError::Version { path: path.to_owned(), format, version });
    }
    serde_json::from_slice(text).map_err(error)
}

fn check_digest(path: &Path, expected: &str) -> Result<(), GuestError> {
    let found = digest_of_file(path).map_err(|source| GuestError::Read { path: path.to_owned(), source })?;
    if found == expected {
        return Ok(());
    }
    Err(GuestError::Digest { path: path.to_owned(), expected: expected.to_owned(), found })
}

fn list(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    places.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(kernel: &str, digest: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write(GuestFiles::KERNEL, kernel);
        write(GuestFiles::BOOT_IMAGE, "");
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let manifest = GuestManifest {
            format: GuestManifest::FORMAT.to_owned(),
            version: GuestManifest::VERSION,
            kernel_release: "7.2.13-hutch".to_owned(),
            kernel_digest: digest.to_owned(),
            boot_image_digest: empty.to_owned(),
        };
        write(GuestFiles::MANIFEST, &serde_json::to_string(&manifest).unwrap());
        directory
    }

    /// SHA-256 of `abc`, from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn files_with_the_right_digests_are_taken() {
        let directory = directory("abc", ABC);
        let found = GuestFiles::find(Some(directory.path())).unwrap();
        assert_eq!(found.manifest.kernel_release, "7.2.13-hutch");
    }

    #[test]
    fn another_kernel_than_described_is_refused_and_the_fix_named() {
        let directory = directory("abd", ABC);
        let error = GuestFiles::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("linux-um") && error.contains("cargo xtask guest"), "{error}");
    }

    #[test]
    fn a_newer_manifest_is_refused_by_its_version_alone() {
        let text = br#"{"format":"hutch-guest","version":9,"something":"else"}"#;
        let error = parse_manifest(Path::new("guest.json"), text).unwrap_err();
        assert!(matches!(error, GuestError::Version { version: 9, .. }), "{error}");
    }

    #[test]
    fn an_empty_directory_says_how_to_build() {
        let directory = tempfile::tempdir().unwrap();
        let error = GuestFiles::find(Some(directory.path())).unwrap_err().to_string();
        assert!(error.contains("cargo xtask guest"), "{error}");
    }
}
