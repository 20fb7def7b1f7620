//! The [`Engine`] trait: what every way to run a guest's kernel must do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hutch_units::{Mebibytes, SandboxId};

use crate::agent;
use crate::artefact::Artefact;
use crate::finding::Finding;
use crate::guest::GuestError;
use crate::machine::{EngineKind, Isolation, Machine, MachineRecord, MachineSpec};
use crate::snapshot::{Origin, Prepared, Save, SaveError, SnapshotError, SnapshotManifest, TemplateSpec};

/// What the operations of an [`Engine`] return: a boxed future, so that engines can stand behind `dyn`.
pub type EngineFuture<'a, T> = BoxFuture<'a, T>;

/// A way to run a guest's kernel.
///
/// For one sandbox at most one of `start`, `adopt` and `destroy` is called at a time; an engine still bears
/// a `destroy` that comes while a dropped `start` is being undone: it waits for that.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Which engine this is.
    fn kind(&self) -> EngineKind;

    /// What stands between its guests and the host.
    fn isolation(&self) -> Isolation {
        self.kind().isolation()
    }

    /// Looks at the host: what is needed, what is there, what to do. Sandboxes can start when no finding is
    /// [`crate::finding::Verdict::Missing`]. Leaves nothing behind.
    fn probe(&self) -> EngineFuture<'_, Vec<Finding>>;

    /// Starts a machine and returns when its agent has acknowledged host name, clock and entropy: both halves,
    /// [`Engine::prepare`] and [`Engine::activate`].
    ///
    /// Cancel-safe: when the future is dropped, or fails, what it had made is removed in the background or by
    /// [`Engine::destroy`], whichever comes first.
    fn start<'a>(&'a self, spec: &'a MachineSpec, origin: &'a Origin) -> EngineFuture<'a, Result<Machine, StartError>>;

    /// Starts a machine up to where its agent waits to be told who it is. Cancel-safe as [`Engine::start`].
    fn prepare<'a>(
        &'a self,
        spec: &'a MachineSpec,
        origin: &'a Origin,
    ) -> EngineFuture<'a, Result<Prepared, StartError>>;

    /// Tells a prepared machine who it is, by the specification, and returns when its agent has acknowledged host
    /// name, clock and entropy. Cancel-safe as [`Engine::start`].
    fn activate<'a>(
        &'a self,
        prepared: Prepared,
        spec: &'a MachineSpec,
    ) -> EngineFuture<'a, Result<Machine, StartError>>;

    /// What the template for such machines is found by: another key for every guest kernel, agent, image, size and
    /// kind of processor.
    fn template_key<'a>(
        &'a self,
        base_image: &'a Path,
        memory: Mebibytes,
        disk: Mebibytes,
    ) -> EngineFuture<'a, Result<String, GuestError>>;

    /// Makes a template: boots a machine, saves it when its agent answers, and removes all else of it. When it
    /// fails, what it had made is removed by [`Engine::destroy`] with the template's id.
    fn make_template<'a>(&'a self, template: &'a TemplateSpec)
    -> EngineFuture<'a, Result<SnapshotManifest, SaveError>>;

    /// Saves a machine, as the difference to the template that it comes from if it does from one. Once begun it goes
    /// on to its end also when the future is dropped. When it fails the machine goes on.
    ///
    /// After [`crate::snapshot::Then::End`] what is left on the host is removed by [`Engine::destroy`].
    fn save<'a>(
        &'a self,
        spec: &'a MachineSpec,
        machine: &'a Machine,
        save: &'a Save,
    ) -> EngineFuture<'a, Result<SnapshotManifest, SaveError>>;

    /// Finishes a save with [`crate::snapshot::Then::End`] whose caller was killed: the saved machine if the kernel
    /// had written it whole or somebody has finished it before, else `None`, and then nothing of it is left. To be
    /// called when the machine's process is gone.
    fn finish_save<'a>(&'a self, directory: &'a Path) -> EngineFuture<'a, Result<Option<SnapshotManifest>, SaveError>>;

    /// Whether a saved machine can be started here: reads its manifest and state.
    fn verify<'a>(&'a self, directory: &'a Path) -> EngineFuture<'a, Result<SnapshotManifest, SnapshotError>>;

    /// Finds a machine again that an earlier run of the service started, and connects to its agent.
    fn adopt<'a>(
        &'a self,
        spec: &'a MachineSpec,
        record: &'a MachineRecord,
    ) -> EngineFuture<'a, Result<Machine, AdoptError>>;

    /// Ends the machine and removes all that the engine made for it. Succeeds from every partial state and when
    /// nothing is left to do. The disk and the state directory itself are the caller's.
    fn destroy<'a>(
        &'a self,
        spec: &'a MachineSpec,
        record: Option<&'a MachineRecord>,
    ) -> EngineFuture<'a, Result<(), DestroyError>>;

    /// Everything on the host that this engine made, found by looking at the host and not at any record.
    fn artefacts(&self) -> EngineFuture<'_, Result<Vec<Artefact>, AuditError>>;

    /// Removes one artefact; succeeds when it is already gone.
    fn remove_artefact<'a>(&'a self, artefact: &'a Artefact) -> EngineFuture<'a, Result<(), AuditError>>;
}

/// Why a machine did not start. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The guest kernel, boot image or launcher is not there or not what it should be.
    #[error("the guest files cannot be used")]
    Guest(#[source] GuestError),
    /// The saved machine that it was to begin from cannot be used.
    #[error("the saved machine for {id} cannot be used")]
    Snapshot {
        /// The sandbox.
        id: SandboxId,
        /// What is wrong with it.
        #[source]
        source: SnapshotError,
    },
    /// A file or directory of the specification is not there or of the wrong kind.
    #[error("{} cannot be used as the {role} of {id}", path.display())]
    Input {
        /// The sandbox.
        id: SandboxId,
        /// What the file was to be: `disk`, `base image`, `state directory`.
        role: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The host's cgroups cannot be used.
    #[error("no cgroup can be made for {id}")]
    Cgroup {
        /// The sandbox.
        id: SandboxId,
        /// What is wrong with them.
        #[source]
        source: hutch_jail::cgroup::LayoutError,
    },
    /// The launcher could not be run at all, or did not say what a launcher says.
    #[error("the launcher {} did not work for {id}", launcher.display())]
    Launcher {
        /// The sandbox.
        id: SandboxId,
        /// The program.
        launcher: PathBuf,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// The launcher ran, and says that the jail could not be made.
    #[error("the jail of {id} could not be made")]
    Jail {
        /// The sandbox.
        id: SandboxId,
        /// Which step failed, and a hint.
        #[source]
        source: hutch_jail::report::Failure,
    },
    /// The kernel ended before its agent answered.
    #[error("the guest kernel of {id} ended during boot ({reason:?}); its console said: {console}")]
    Ended {
        /// The sandbox.
        id: SandboxId,
        /// How it ended.
        reason: crate::machine::ExitReason,
        /// The end of its console log.
        console: String,
    },
    /// The agent did not answer in time.
    #[error("the agent of {id} did not answer within {} ms; the console said: {console}", deadline.as_millis())]
    Silent {
        /// The sandbox.
        id: SandboxId,
        /// How long it was given.
        deadline: Duration,
        /// The end of its console log.
        console: String,
    },
    /// The agent answered, but not as it should.
    #[error("the agent of {id} could not be configured")]
    Agent {
        /// The sandbox.
        id: SandboxId,
        /// What it answered.
        #[source]
        source: agent::ClientError,
    },
    /// A system call on the service's own side failed.
    #[error("{operation} failed for {id}")]
    Host {
        /// The sandbox.
        id: SandboxId,
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Why a machine was not found again.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The record is of a newer version or another engine.
    #[error(
        "the record of {id} has format {format:?} version {version}, known is {} version {}",
        MachineRecord::FORMAT,
        MachineRecord::VERSION
    )]
    Record {
        /// The sandbox.
        id: SandboxId,
        /// The record's format.
        format: String,
        /// The record's version.
        version: u32,
    },
    /// The process is no more: it ended, or the host was booted since. Destroy it.
    #[error("the guest kernel of {id} is gone (process {pid})")]
    Gone {
        /// The sandbox.
        id: SandboxId,
        /// The process that it was.
        pid: u32,
    },
    /// The process lives but its agent does not answer in time.
    #[error("the agent of {id} did not answer within {} ms", deadline.as_millis())]
    Silent {
        /// The sandbox.
        id: SandboxId,
        /// How long it was given.
        deadline: Duration,
    },
    /// The agent answered, but not as it should.
    #[error("the agent of {id} does not answer as it should")]
    Agent {
        /// The sandbox.
        id: SandboxId,
        /// What it answered.
        #[source]
        source: agent::ClientError,
    },
    /// A system call on the service's own side failed.
    #[error("{operation} failed for {id}")]
    Host {
        /// The sandbox.
        id: SandboxId,
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Why a machine could not be removed entirely. Calling again is safe.
#[derive(Debug, thiserror::Error)]
pub enum DestroyError {
    /// Its processes did not end in time.
    #[error("{count} processes of {id} did not end within {} ms after being killed", deadline.as_millis())]
    Processes {
        /// The sandbox.
        id: SandboxId,
        /// How many are left.
        count: usize,
        /// How long they were given.
        deadline: Duration,
    },
    /// Something could not be removed.
    #[error("{} of {id} cannot be removed", path.display())]
    Remove {
        /// The sandbox.
        id: SandboxId,
        /// What is left.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The host could not be asked.
    #[error("{operation} failed for {id}")]
    Host {
        /// The sandbox.
        id: SandboxId,
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Why the host's artefacts could not be listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A directory of the host cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// An artefact cannot be removed.
    #[error("{name} cannot be removed")]
    Remove {
        /// The artefact's name.
        name: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}
