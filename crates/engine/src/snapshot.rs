//! Saved machines: where one lies, what is known of it, and what can be wrong with it.
//!
//! A saved machine is a directory. It is written under its name and `.partial`, gets its name when it is complete,
//! and does not change afterwards: machines that were started from it have its files mapped. Removing it takes
//! nothing from them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hutch_units::{Bytes, Mebibytes, SandboxId};
use serde::{Deserialize, Serialize};

use crate::agent::Client;
use crate::machine::{EngineKind, Exit, MachineRecord, MachineSpec, StartTimes};

/// Names of the files of a saved machine.
pub mod file {
    /// What is known of it, as JSON: [`super::SnapshotManifest`].
    pub const MANIFEST: &str = "snapshot.json";
    /// What the kernel's process has beside guest memory, and which page is in which layer.
    pub const STATE: &str = "state";
    /// The pages that no other layer has; sparse.
    pub const MEMORY: &str = "memory";
    /// The disk as it was, for saved machines that are started more than once.
    pub const DISK: &str = "disk";
}

/// Where a machine begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// With its kernel's first instruction.
    Boot,
    /// Where a saved machine was. Its disk is to be as it was then.
    Saved {
        /// The directory of the saved machine.
        directory: PathBuf,
        /// The directory of the template that it is the difference to; `None` when it stands alone.
        template: Option<PathBuf>,
        /// Who it is.
        identity: Identity,
    },
}

/// Who a machine is that begins where another was. Its random number generator is reseeded either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Somebody new: boot id, machine id and host name of its own.
    New,
    /// The one that was saved.
    Same,
}

/// What is known of a saved machine. `format` and `version` can be read without understanding the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotManifest {
    /// Always [`SnapshotManifest::FORMAT`].
    pub format: String,
    /// [`SnapshotManifest::VERSION`] of the writer.
    pub version: u32,
    /// The engine that saved it and can start it.
    pub engine: EngineKind,
    /// SHA-256 of the guest kernel, hexadecimal: no other can go on with it.
    pub kernel_digest: String,
    /// SHA-256 of the boot image that holds the agent, hexadecimal.
    pub boot_image_digest: String,
    /// The root file system.
    pub base_image: PathBuf,
    /// Guest memory.
    pub memory: Mebibytes,
    /// Length of the disk.
    pub disk: Bytes,
    /// The key that this template is found by; `None` for what is no template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key of the template that this is the difference to; `None` when it stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// What the host's processor can do, as a digest: a guest that uses what another lacks would crash there.
    pub processor: String,
    /// When it was saved: wall clock, nanoseconds since 1970.
    pub saved_at_ns: u64,
    /// What was saved; `None` while it is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
}

/// What was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// SHA-256 of the file `state`, hexadecimal.
    pub state_digest: String,
    /// Space that the files of the machine take, disk not included.
    pub bytes: Bytes,
    /// How long the machine stood still, in microseconds; `None` when nobody was there to be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_us: Option<u64>,
}

/// A template to be made: a machine is booted, and saved when its agent answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSpec {
    /// Names the cgroup and everything else on the host while it is made.
    pub id: SandboxId,
    /// A directory of its own, made by the caller, as for any machine.
    pub state_dir: PathBuf,
    /// What it is found by: [`crate::Engine::template_key`].
    pub key: String,
    /// Where the template comes to lie.
    pub directory: PathBuf,
    /// The root file system.
    pub base_image: PathBuf,
    /// A disk that was made for it, on the same file system as `directory`: it becomes the template's.
    pub disk: PathBuf,
    /// Guest memory.
    pub memory: Mebibytes,
    /// Processors of the making machine, as a bound of processor time. Machines from it may have others.
    pub vcpu: u32,
    /// The host user id for the time of making.
    pub host_uid: u32,
}

impl TemplateSpec {
    /// The machine that is booted and saved.
    pub fn machine(&self) -> MachineSpec {
        MachineSpec {
            id: self.id,
            state_dir: self.state_dir.clone(),
            base_image: self.base_image.clone(),
            disk: self.disk.clone(),
            memory: self.memory,
            vcpu: self.vcpu,
            cpu_quota_percent: None,
            host_uid: self.host_uid,
            hostname: "template".to_owned(),
        }
    }
}

/// A machine to be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Save {
    /// Where the saved machine comes to lie. Its parent exists, itself does not.
    pub directory: PathBuf,
    /// What becomes of the machine.
    pub then: Then,
}

/// What becomes of a machine that was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// It ends: its process is gone when the save returns. Its disk belongs to the saved machine.
    End,
    /// It goes on, after its disk was copied to this place.
    GoOn {
        /// The copy, made by the save; no file of this name exists.
        disk_copy: PathBuf,
    },
}

/// A machine that runs up to where its agent waits to be told who it is. Nothing of the user's has run.
///
/// [`crate::Engine::activate`] makes it a machine. Dropping it only disconnects: whoever does not use it calls
/// [`crate::Engine::destroy`].
#[derive(Debug)]
pub struct Prepared {
    /// What to persist.
    pub record: MachineRecord,
    /// The agent, which answers only to what needs no configuration.
    pub agent: Client,
    /// How long it took so far.
    pub times: StartTimes,
    pub(crate) exit: tokio::sync::watch::Receiver<Option<Exit>>,
    pub(crate) continues: bool,
    pub(crate) renamed: bool,
    pub(crate) since: Instant,
}

impl Prepared {
    /// Puts together what an engine has prepared. `exit` becomes `Some` once, when the kernel's process ends.
    pub fn new(
        record: MachineRecord,
        agent: Client,
        times: StartTimes,
        exit: tokio::sync::watch::Receiver<Option<Exit>>,
        origin: &Origin,
    ) -> Self {
        let continues = matches!(origin, Origin::Saved { .. });
        let renamed = !matches!(origin, Origin::Saved { identity: Identity::Same, .. });
        Self { record, agent, times, exit, continues, renamed, since: Instant::now() }
    }

    /// Whether the kernel's process has ended.
    pub fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }
}

/// Why a saved machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file of it is not there or cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `snapshot.json` is not what it should be.
    #[error("{} does not describe a saved machine", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It is of another format or version.
    #[error(
        "the saved machine {} has format {format:?} version {version}, this program reads {} version {}: use the \
         release of Hutch that saved it",
        directory.display(),
        SnapshotManifest::FORMAT,
        SnapshotManifest::VERSION
    )]
    Version {
        /// The saved machine.
        directory: PathBuf,
        /// The format it says.
        format: String,
        /// The version it says.
        version: u32,
    },
    /// It was never completed.
    #[error("the saved machine {} is incomplete: writing it was interrupted", directory.display())]
    Incomplete {
        /// The saved machine.
        directory: PathBuf,
    },
    /// It belongs to another guest kernel or agent, and that one is not here any more.
    #[error(
        "the saved machine {} belongs to the guest {wanted}, which is neither installed nor kept: install the \
         release of Hutch that saved it",
        directory.display()
    )]
    Guest {
        /// The saved machine.
        directory: PathBuf,
        /// The digests of kernel and boot image that it needs, shortened.
        wanted: String,
    },
    /// It was saved on another kind of processor.
    #[error(
        "the saved machine {} was saved on another kind of processor (features {saved}, here {here}): resume it on \
         a host like the one that saved it",
        directory.display()
    )]
    Processor {
        /// The saved machine.
        directory: PathBuf,
        /// The digest of what that processor can do.
        saved: String,
        /// The digest of what this one can do.
        here: String,
    },
    /// A file of it is not the one that was saved.
    #[error("{} is damaged: its SHA-256 is {found}, the saved machine was written with {expected}", path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// What the manifest says.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// It is the difference to a template that was not given or is another one.
    #[error("the saved machine {} needs the template {wanted}, given is {given}", directory.display())]
    Template {
        /// The saved machine.
        directory: PathBuf,
        /// The key that it needs.
        wanted: String,
        /// The key that was given.
        given: String,
    },
}

/// Why a machine was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The machine that was to be saved as a template did not start.
    #[error("the machine for the template {key} did not start")]
    Start {
        /// The template.
        key: String,
        /// Why.
        #[source]
        source: Box<crate::engine::StartError>,
    },
    /// The agent of the machine for a template did not do what it should.
    #[error("the agent of the machine for the template {key} cannot be used")]
    Agent {
        /// The template.
        key: String,
        /// What happened.
        #[source]
        source: crate::agent::ClientError,
    },
    /// What was made for a template could not be removed.
    #[error("the machine for the template {key} could not be removed")]
    Remove {
        /// The template.
        key: String,
        /// What is left.
        #[source]
        source: Box<crate::engine::DestroyError>,
    },
    /// The saved machine's files could not be made, written or put in their place. The machine goes on, unless
    /// `ended` says otherwise.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The guest's kernel cannot be asked, or did not answer in time.
    #[error("the guest's kernel of {id} cannot be asked to save itself")]
    Control {
        /// The sandbox.
        id: SandboxId,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// The guest's kernel tried and failed; the machine goes on.
    #[error("the guest's kernel of {id} could not save itself")]
    Kernel {
        /// The sandbox.
        id: SandboxId,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The kernel was saved and should have ended, and did not.
    #[error("the guest's kernel of {id} did not end within {} ms after it was saved", deadline.as_millis())]
    Lingers {
        /// The sandbox.
        id: SandboxId,
        /// How long it was given.
        deadline: Duration,
    },
    /// The machine ended on its own while it was being saved.
    #[error("the guest's kernel of {id} ended while it was being saved")]
    Ended {
        /// The sandbox.
        id: SandboxId,
    },
    /// The guest files cannot be found, or not be kept for the saved machine.
    #[error("the guest files cannot be used")]
    Guest(#[source] crate::guest::GuestError),
    /// The disk could not be copied; the machine goes on.
    #[error("the disk of {id} could not be copied")]
    Disk {
        /// The sandbox.
        id: SandboxId,
        /// What happened.
        #[source]
        source: hutch_image::disk::DiskError,
    },
}

/// What any version of a manifest has.
#[derive(Debug, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl SnapshotManifest {
    /// The magic.
    pub const FORMAT: &'static str = "hutch-snapshot";
    /// The version that this program writes, and the newest that it reads.
    pub const VERSION: u32 = 1;
    /// The longest manifest that is read, in bytes.
    const LONGEST: u64 = 64 << 10;

    /// Reads the manifest of a saved machine, complete or not.
    ///
    /// # Errors
    /// When it cannot be read, or is of another format or version.
    pub fn read(directory: &Path) -> Result<Self, SnapshotError> {
        use std::io::Read as _;
        let path = directory.join(file::MANIFEST);
        let read = |source| SnapshotError::Read { path: path.clone(), source };
        let mut text = Vec::new();
        std::fs::File::open(&path).map_err(read)?.take(Self::LONGEST).read_to_end(&mut text).map_err(read)?;
        let manifest = |source| SnapshotError::Manifest { path: path.clone(), source };
        let Header { format, version } = serde_json::from_slice(&text).map_err(manifest)?;
        if format != Self::FORMAT || version > Self::VERSION {
            return Err(SnapshotError::Version { directory: directory.to_owned(), format, version });
        }
        serde_json::from_slice(&text).map_err(manifest)
    }

    /// Writes the manifest into the directory of a saved machine, in place of one that is there.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let (path, new) = (directory.join(file::MANIFEST), directory.join("snapshot.json.new"));
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(&new, &path)
    }

    /// The key of the template that machines from this share their pages with.
    pub fn base_key(&self) -> Option<&str> {
        self.key.as_deref().or(self.template.as_deref())
    }
}

/// The name that a saved machine has while it is written.
pub fn partial(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> SnapshotManifest {
        SnapshotManifest {
            format: SnapshotManifest::FORMAT.to_owned(),
            version: SnapshotManifest::VERSION,
            engine: EngineKind::Usermode,
            kernel_digest: "k".to_owned(),
            boot_image_digest: "b".to_owned(),
            base_image: "/images/a.erofs".into(),
            memory: Mebibytes(256),
            disk: Bytes(1 << 30),
            key: None,
            template: Some("0123".to_owned()),
            processor: "p".to_owned(),
            saved_at_ns: 7,
            saved: None,
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        manifest().write(directory.path()).unwrap();
        assert_eq!(SnapshotManifest::read(directory.path()).unwrap(), manifest());
    }

    #[test]
    fn a_newer_manifest_is_refused_before_it_is_decoded() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"format":"hutch-snapshot","version":2,"memory":"much"}"#;
        std::fs::write(directory.path().join(file::MANIFEST), text).unwrap();
        let error = SnapshotManifest::read(directory.path()).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }

    #[test]
    fn what_is_shared_is_the_template() {
        assert_eq!(manifest().base_key(), Some("0123"));
        let template = SnapshotManifest { key: Some("4567".to_owned()), template: None, ..manifest() };
        assert_eq!(template.base_key(), Some("4567"));
    }
}
