//! Running a guest: the [`Engine`] trait, the engines, and the client of the agent inside.
//!
//! An engine starts a machine from a [`MachineSpec`], finds it again after the service was restarted, and
//! removes every trace of it. What it leaves on the host it can also list by looking at the host, so that
//! an audit needs no trust in anyone's bookkeeping.

pub mod agent;
pub mod artefact;
pub mod engine;
pub mod finding;
pub mod guest;
pub mod machine;
pub mod snapshot;
pub mod usermode;

pub use engine::{AdoptError, DestroyError, Engine, EngineFuture, StartError};
pub use machine::{EngineKind, Isolation, Machine, MachineRecord, MachineSpec};
pub use snapshot::{Identity, Origin, Prepared, Save, SaveError, SnapshotError, SnapshotManifest, TemplateSpec, Then};
