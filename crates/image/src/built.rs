//! Built images: the file, its description beside it, and the checks that they belong together.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hutch_units::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::erofs;
use crate::file::{At, FileError};

const MAGIC: &str = "hutch-image";
const VERSION: u32 = 1;

/// An image in the cache, ready to be given to a sandbox as a read-only disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltImage {
    /// The name of its recipe, for example `debian:13`.
    pub name: String,
    /// The key of its recipe, in hexadecimal.
    pub key: String,
    /// The EROFS file.
    pub path: PathBuf,
    /// `sha256:` and the digest of the file, in hexadecimal.
    pub digest: String,
    /// The length of the file.
    pub size: Bytes,
    /// When the build ended, in seconds since 1970.
    pub built_at: u64,
    /// What is installed, by name.
    pub packages: Vec<Package>,
}

/// A package in an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Its name; names from npm have `npm:` before them.
    pub name: String,
    /// Its version, as its package system writes it.
    pub version: String,
}

/// Why an image in the cache cannot be used. Building it again repairs it.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Image or description could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The description is no JSON of the expected form.
    #[error("{} is not the description of an image", path.display())]
    Form {
        /// The description.
        path: PathBuf,
        /// Where and what.
        source: serde_json::Error,
    },
    /// The description has another magic or a version that this program does not know.
    #[error("{} is {magic:?} version {version}, known is {MAGIC:?} version {VERSION}", path.display())]
    Version {
        /// The description.
        path: PathBuf,
        /// Its magic.
        magic: String,
        /// Its version.
        version: u32,
    },
    /// The image is not the file that the description speaks of.
    #[error("{} does not match its description: {what} is {found}, expected {expected}", path.display())]
    Mismatch {
        /// The image.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What the file has.
        found: String,
        /// What the description says.
        expected: String,
    },
}

/// The stored description. Fields are only ever added.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    magic: String,
    version: u32,
    name: String,
    key: String,
    digest: String,
    size: u64,
    built_at: u64,
    packages: Vec<Package>,
}

/// What every version of the description has.
#[derive(Deserialize)]
struct Envelope {
    magic: String,
    version: u32,
}

impl BuiltImage {
    /// Looks for the image of this key; checks that size and file system header are the described ones.
    pub(crate) fn open(cache: &Cache, key: &str) -> Result<Option<Self>, ImageError> {
        let description = cache.description(key);
        let text = match std::fs::read(&description) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.at("read", &description)?,
        };
        let built = Self::decode(&text, &description, cache.image(key))?;
        built.expect("key", &built.key, key)?;
        let size = match built.path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.at("look at", &built.path)?.len(),
        };
        built.expect("size", &size.to_string(), &built.size.0.to_string())?;
        let uuid = erofs::read_uuid(&built.path)?.unwrap_or_else(|| "no EROFS".to_owned());
        built.expect("file system", &uuid, &erofs::uuid(key))?;
        Ok(Some(built))
    }

    /// Reads the whole image and compares its digest: about a second for each gigabyte.
    pub fn verify(&self) -> Result<(), ImageError> {
        let (digest, _) = digest(&self.path)?;
        self.expect("digest", &digest, &self.digest)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let description = Description {
            magic: MAGIC.to_owned(),
            version: VERSION,
            name: self.name.clone(),
            key: self.key.clone(),
            digest: self.digest.clone(),
            size: self.size.0,
            built_at: self.built_at,
            packages: self.packages.clone(),
        };
        let mut text = serde_json::to_vec_pretty(&description).expect("plain strings and numbers become JSON");
        text.push(b'\n');
        text
    }

    fn decode(text: &[u8], path: &Path, image: PathBuf) -> Result<Self, ImageError> {
        let form = |source| ImageError::Form { path: path.to_owned(), source };
        let Envelope { magic, version } = serde_json::from_slice(text).map_err(form)?;
        if magic != MAGIC || version != VERSION {
            return Err(ImageError::Version { path: path.to_owned(), magic, version });
        }
        let description: Description = serde_json::from_slice(text).map_err(form)?;
        Ok(Self {
            name: description.name,
            key: description.key,
            path: image,
            digest: description.digest,
            size: Bytes(description.size),
            built_at: description.built_at,
            packages: description.packages,
        })
    }

    fn expect(&self, what: &'static str, found: &str, expected: &str) -> Result<(), ImageError> {
        if found == expected {
            return Ok(());
        }
        let (found, expected) = (found.to_owned(), expected.to_owned());
        Err(ImageError::Mismatch { path: self.path.clone(), what, found, expected })
    }
}

/// The digest of a file as `sha256:` and hexadecimal, and its length.
pub(crate) fn digest(path: &Path) -> Result<(String, Bytes), FileError> {
    let mut file = File::open(path).at("open", path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut length = 0;
    loop {
        let count = file.read(&mut buffer).at("read", path)?;
        if count == 0 {
            return Ok((format!("sha256:{}", hexadecimal(&hash.finalize())), Bytes(length)));
        }
        hash.update(&buffer[..count]);
        length += count as u64;
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../tests/golden/image-v1.json");

    fn golden() -> BuiltImage {
        BuiltImage {
            name: "debian:13".to_owned(),
            key: "ab".repeat(32),
            path: PathBuf::from("/cache/images/x.erofs"),
            digest: format!("sha256:{}", "cd".repeat(32)),
            size: Bytes(231_522_304),
            built_at: 1_764_547_200,
            packages: vec![Package { name: "bash".to_owned(), version: "5.2.37-2+b10".to_owned() }],
        }
    }

    fn decode(text: &str) -> Result<BuiltImage, ImageError> {
        BuiltImage::decode(text.as_bytes(), Path::new("/cache/images/x.json"), golden().path)
    }

    #[test]
    fn the_description_has_its_golden_form() {
        assert_eq!(String::from_utf8(golden().encode()).expect("JSON is text"), GOLDEN);
        assert_eq!(decode(GOLDEN).expect("the golden file is valid"), golden());
    }

    #[test]
    fn a_newer_description_is_told_from_a_broken_one() {
        let newer = r#"{"magic": "hutch-image", "version": 2, "content": "unknown"}"#;
        assert!(matches!(decode(newer), Err(ImageError::Version { version: 2, .. })));
        assert!(matches!(decode("{"), Err(ImageError::Form { .. })));
    }

    #[test]
    fn the_digest_of_a_file_is_its_sha256() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("abc");
        std::fs::write(&path, "abc").expect("a file");
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&path).expect("readable"), (expected.to_owned(), Bytes(3)));
    }
}
