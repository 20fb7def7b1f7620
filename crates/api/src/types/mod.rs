//! What goes in and out. The names on the wire are those of the CreateOS sandbox interface, as its official
//! clients speak it; what is ours is marked "Addition" and never changes the meaning of the rest.

mod catalogue;
mod execute;
mod file;
mod fork;
mod image;
mod page;
mod reference;
mod report;
mod sandbox;
mod snapshot;
mod timestamp;
mod usage;

pub use catalogue::{Health, HostStatus, HostView, Readiness, RootfsCatalogue, RootfsEntry, ShapeView, Stats, WhoAmI};
pub use execute::{Encoding, Execute, ExecuteAnswer, ExecuteEvent, ExecuteFrame, ExecuteResult, Exit};
pub use file::{
    ByteRange, Created, Deleted, FileBody, FileEntry, FileKind, MakeDirectory, MoveFile, Moved, ReadFile, RemoveFile,
    WriteFile, Written,
};
pub use fork::{ForkAnswer, ForkSandbox, ForkedSandboxes};
pub use image::{BuildProgress, ImageStatus, ImageView};
pub use page::{Page, PageRequest, Pagination};
pub use reference::{GuestPath, SandboxReference, SnapshotReference};
pub use report::{Artefact, ArtefactKind, AuditReport, CheckStatus, DoctorReport, Finding};
pub use sandbox::{
    CreateSandbox, CreatedSandbox, DestroyedSandbox, DiskMount, Isolation, NetworkReference, SandboxFilter,
    SandboxStatus, SandboxView, Until, UpdateSandbox,
};
pub use snapshot::{CreateSnapshot, DeletedSnapshot, RestoreSnapshot, SnapshotFilter, SnapshotStatus, SnapshotView};
pub use timestamp::Timestamp;
pub use usage::{Period, SandboxUsage, Usage, UsageQuery, UsageReport};
