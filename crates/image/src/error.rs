//! Why a build gave no image.

use hutch_units::Bytes;

use crate::cache::CacheError;
use crate::file::FileError;
use crate::mirror::MirrorError;
use crate::npm::NpmError;
use crate::prerequisite::Prerequisite;
use crate::program::ProgramError;

/// Why a build gave no image. Whichever it is, nothing of the build is left.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Device nodes, owners and `chroot` need root.
    #[error("building the image {image} needs root; run it with sudo")]
    NotRoot {
        /// The image.
        image: String,
    },
    /// Programs that the build calls are not installed.
    #[error("building the image {image} needs {}", Prerequisite::sentence(missing))]
    Missing {
        /// The image.
        image: String,
        /// What is missing, each with its fix.
        missing: Vec<Prerequisite>,
    },
    /// Less free space in the cache than the build needs.
    #[error("building the image {image} needs {needed} in {}, there are {free}; free some or set HUTCH_CACHE", cache.display())]
    Space {
        /// The image.
        image: String,
        /// The cache directory.
        cache: std::path::PathBuf,
        /// What the build needs.
        needed: Bytes,
        /// What is there.
        free: Bytes,
    },
    /// The caller cancelled it.
    #[error("the build of {image} was cancelled")]
    Cancelled {
        /// The image.
        image: String,
    },
    /// No Debian mirror to take the packages from.
    #[error(transparent)]
    Mirror(MirrorError),
    /// A package from npm could not be had.
    #[error(transparent)]
    Npm(NpmError),
    /// A script of the recipe failed.
    #[error("the script {file} of the recipe failed")]
    Hook {
        /// Its file name.
        file: String,
        /// How it ended.
        source: ProgramError,
    },
    /// Another program of the build failed.
    #[error(transparent)]
    Program(ProgramError),
    /// The cache could not be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A file of the build could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl BuildError {
    /// The same error, or [`Cancelled`](Self::Cancelled) where a program was ended by the cancellation.
    pub(crate) fn or_cancelled(self, image: &str) -> Self {
        let (Self::Mirror(MirrorError::Program(program))
        | Self::Npm(NpmError::Program { source: program, .. })
        | Self::Hook { source: program, .. }
        | Self::Program(program)) = &self
        else {
            return self;
        };
        if matches!(program, ProgramError::Cancelled { .. }) {
            Self::Cancelled { image: image.to_owned() }
        } else {
            self
        }
    }
}

impl From<MirrorError> for BuildError {
    fn from(error: MirrorError) -> Self {
        Self::Mirror(error)
    }
}

impl From<NpmError> for BuildError {
    fn from(error: NpmError) -> Self {
        Self::Npm(error)
    }
}

impl From<ProgramError> for BuildError {
    fn from(error: ProgramError) -> Self {
        Self::Program(error)
    }
}
