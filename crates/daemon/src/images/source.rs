//! Where images and disks come from.

use std::fmt;
use std::path::{Path, PathBuf};

use hutch_image::{Cache, CacheError, Cancel, Event, Image, Leftover, UnknownImage};
use hutch_units::{Bytes, Mebibytes};

use crate::clock::Moment;

/// Makes images and disks. Blocking: called on threads that may block.
pub trait ImageSource: Send + Sync + fmt::Debug + 'static {
    /// Every image there is, the default first.
    fn catalogue(&self) -> Vec<CatalogueEntry>;

    /// The proper name of the image that `name` or an alias means; an empty name means the default.
    ///
    /// # Errors
    /// [`UnknownImage`] lists the choices.
    fn resolve(&self, name: &str) -> Result<String, UnknownImage>;

    /// The image of this proper name, if it is built and whole.
    fn built(&self, name: &str) -> Option<ReadyImage>;

    /// Builds the image of this proper name.
    ///
    /// # Errors
    /// [`SourceError`] when it cannot be built or was cancelled; nothing is left behind.
    fn build(&self, name: &str, progress: &dyn Fn(Event), cancel: &Cancel) -> Result<ReadyImage, SourceError>;

    /// Makes an empty writable disk at `path`.
    ///
    /// # Errors
    /// [`SourceError`] when it cannot be made.
    fn make_disk(&self, path: &Path, size: Mebibytes) -> Result<(), SourceError>;

    /// What builds that were killed left behind, and what those that run have so far.
    ///
    /// # Errors
    /// [`SourceError`] when it cannot be looked at.
    fn leftovers(&self) -> Result<Vec<Leftover>, SourceError> {
        Ok(Vec::new())
    }

    /// Removes what builds that were killed left behind; how much that was.
    ///
    /// # Errors
    /// [`SourceError`] when it cannot be removed.
    fn sweep(&self) -> Result<usize, SourceError> {
        Ok(0)
    }
}

/// An image that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// Its proper name.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Whether it is taken when a request names none.
    pub is_default: bool,
}

/// An image that is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyImage {
    /// Its file.
    pub path: PathBuf,
    /// The length of the file.
    pub size: Bytes,
    /// When the build ended.
    pub built_at: Moment,
}

/// An image or a disk could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make {what}")]
pub struct SourceError {
    /// The image's name or the disk's path.
    pub what: String,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The catalogue that comes with Hutch, built into a cache directory.
#[derive(Debug)]
pub struct Catalogue {
    cache: Cache,
}

impl Catalogue {
    /// Images are kept in this cache.
    pub fn new(cache: Cache) -> Self {
        Self { cache }
    }

    fn failed(&self, error: CacheError) -> SourceError {
        SourceError { what: format!("order in {}", self.cache.root().display()), source: Box::new(error) }
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}

impl ImageSource for Catalogue {
    fn catalogue(&self) -> Vec<CatalogueEntry> {
        let default = Image::default_image().name();
        let entry = |image: &Image| CatalogueEntry {
            name: image.name().to_owned(),
            description: image.description().to_owned(),
            is_default: image.name() == default,
        };
        Image::all().iter().map(entry).collect()
    }

    fn resolve(&self, name: &str) -> Result<String, UnknownImage> {
        Image::find(name).map(|image| image.name().to_owned())
    }

    fn built(&self, name: &str) -> Option<ReadyImage> {
        // An image that is damaged is one that is not built: the next build repairs it.
        Image::find(name).ok()?.built(&self.cache).ok().flatten().map(ready)
    }

    fn build(&self, name: &str, progress: &dyn Fn(Event), cancel: &Cancel) -> Result<ReadyImage, SourceError> {
        let failed = |source| SourceError { what: name.to_owned(), source };
        let image = Image::find(name).map_err(|error| failed(Box::new(error)))?;
        let report = |event| progress(event);
        image.build(&self.cache, &report, cancel).map(ready).map_err(|error| failed(Box::new(error)))
    }

    fn make_disk(&self, path: &Path, size: Mebibytes) -> Result<(), SourceError> {
        hutch_image::disk::create(&self.cache, path, size)
            .map_err(|error| SourceError { what: path.display().to_string(), source: Box::new(error) })
    }

    fn leftovers(&self) -> Result<Vec<Leftover>, SourceError> {
        self.cache.leftovers().map_err(|error| self.failed(error))
    }

    fn sweep(&self) -> Result<usize, SourceError> {
        self.cache.sweep().map(|removed| removed.len()).map_err(|error| self.failed(error))
    }
}

fn ready(built: hutch_image::BuiltImage) -> ReadyImage {
    let built_at = Moment(i64::try_from(built.built_at.saturating_mul(1000)).unwrap_or(i64::MAX));
    ReadyImage { path: built.path, size: built.size, built_at }
}
