//! The npm part of a tree: packages that hold programs, fetched with the host's npm and checked against the recipe.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha512};

use crate::build::Site;
use crate::built::Package;
use crate::file::{self, At, FileError};
use crate::program::{Program, ProgramError};
use crate::progress::{Cancel, Reporter};
use crate::recipe::NpmPackage;

/// Why a package from npm did not get into the tree.
#[derive(Debug, thiserror::Error)]
pub enum NpmError {
    /// npm could not fetch it, or tar could not unpack it.
    #[error("cannot get the npm package {package}")]
    Program {
        /// Name and version.
        package: String,
        /// The program's failure.
        source: ProgramError,
    },
    /// npm said that it fetched the package but there is no tarball.
    #[error("npm fetched no tarball of {package}")]
    NoTarball {
        /// Name and version.
        package: String,
    },
    /// The tarball is not the one that the recipe was written for.
    #[error("the npm package {package} has the digest {found}, the recipe expects {expected}")]
    Integrity {
        /// Name and version.
        package: String,
        /// Digest of what came.
        found: String,
        /// Digest in the recipe.
        expected: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Fetches the packages and unpacks them into the site's tree.
pub(crate) fn install(packages: &[NpmPackage], site: &Site<'_>, reporter: &mut Reporter<'_>) -> Result<(), NpmError> {
    for (index, package) in packages.iter().enumerate() {
        let percent = u8::try_from(index * 100 / packages.len()).expect("less than 100");
        reporter.advance(format!("fetching {}", package.spec()), percent);
        let tarball = package.fetch(site.scratch, site.cancel)?;
        package.verify(&tarball)?;
        package.unpack(&tarball, site.tree, site.cancel)?;
        file::remove(&tarball)?;
    }
    Ok(())
}

impl NpmPackage {
    /// As the list of an image's packages has it.
    pub(crate) fn entry(&self) -> Package {
        Package { name: format!("npm:{}", self.package), version: self.version.clone() }
    }

    fn spec(&self) -> String {
        format!("{}@{}", self.package, self.version)
    }

    fn fetch(&self, scratch: &Path, cancel: &Cancel) -> Result<PathBuf, NpmError> {
        let folder = scratch.join("npm");
        file::create_directory(&folder)?;
        let pack = Program::enclosed("npm").args(["pack", "--ignore-scripts", "--silent", "--pack-destination"]);
        let pack = pack.arg(&folder).arg(self.spec()).directory(&folder);
        pack.run(cancel, |_| ()).map_err(|source| NpmError::Program { package: self.spec(), source })?;
        let mut entries = fs::read_dir(&folder).at("list", &folder)?;
        let tarball = entries.find_map(|entry| entry.ok().map(|entry| entry.path()));
        tarball.ok_or_else(|| NpmError::NoTarball { package: self.spec() })
    }

    fn verify(&self, tarball: &Path) -> Result<(), NpmError> {
        let content = fs::read(tarball).at("read", tarball)?;
        let found = format!("sha512-{}", STANDARD.encode(Sha512::digest(&content)));
        if found == self.integrity {
            return Ok(());
        }
        Err(NpmError::Integrity { package: self.spec(), found, expected: self.integrity.clone() })
    }

    fn unpack(&self, tarball: &Path, tree: &Path, cancel: &Cancel) -> Result<(), NpmError> {
        let target = tree.join(self.unpack_to.trim_start_matches('/'));
        file::create_directory(&target)?;
        let tar = Program::enclosed("tar").args(["--extract", "--gzip", "--no-same-owner", "--strip-components=1"]);
        let tar = tar.arg("--file").arg(tarball).arg("--directory").arg(&target).args(&self.members);
        tar.run(cancel, |_| ()).map_err(|source| NpmError::Program { package: self.spec(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tarball_with_another_digest_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let tarball = directory.path().join("a.tgz");
        fs::write(&tarball, "abc").expect("a file");
        let mut package = NpmPackage {
            package: "a".to_owned(),
            version: "1.0.0".to_owned(),
            integrity:
                "sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw=="
                    .to_owned(),
            members: Vec::new(),
            unpack_to: "/usr".to_owned(),
        };
        assert!(package.verify(&tarball).is_ok());
        package.integrity = "sha512-AAAA".to_owned();
        assert!(matches!(package.verify(&tarball), Err(NpmError::Integrity { .. })));
    }
}
