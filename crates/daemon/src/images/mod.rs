//! Images as the daemon has them: the catalogue, what is built, and at most one build of each at a time.

mod builds;
mod source;

pub use builds::Images;
pub use source::{Catalogue, CatalogueEntry, ImageSource, ReadyImage, SourceError};
