//! The vocabulary that every crate shares: quantities that carry their unit and ids that name one kind
//! of thing. Nothing here reads, writes or waits.

mod id;
mod name;
mod quantity;
mod shape;

pub use id::{IdError, SandboxId, SnapshotId};
pub use name::{NameError, SandboxName, SnapshotName, SnapshotNameError};
pub use quantity::{Bytes, Mebibytes};
pub use shape::{SHAPES, Shape, ShapeError};
