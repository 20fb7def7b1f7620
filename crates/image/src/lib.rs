//! Root file systems: the catalogue of base images and how they are built from packages, the boot image that holds
//! the agent, and the sparse disks that sandboxes write to. Blocking code; runs as root and calls external programs.

mod build;
mod built;
mod cache;
mod catalogue;
mod debian;
mod erofs;
mod error;
mod file;
mod hook;
mod mirror;
mod npm;
mod prerequisite;
mod program;
mod progress;
mod recipe;
mod sparse;
mod tree;

pub mod boot;
pub mod disk;

pub use built::{BuiltImage, ImageError, Package};
pub use cache::{Cache, CacheError, Leftover};
pub use catalogue::{Image, Listing, UnknownImage};
pub use error::BuildError;
pub use file::FileError;
pub use mirror::{MirrorError, debian_mirror};
pub use npm::NpmError;
pub use prerequisite::{Prerequisite, prerequisites};
pub use program::ProgramError;
pub use progress::{Cancel, Event, Progress, Silent, Step};
pub use recipe::{Recipe, RecipeError};
