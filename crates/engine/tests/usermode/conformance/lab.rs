//! An engine on this host, with machines that are gone when the test is over, passed or not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream;
use hutch_engine::agent::{Client, Collected};
use hutch_engine::artefact::Artefact;
use hutch_engine::{
    Engine, Identity, Machine, MachineSpec, Origin, Save, SaveError, SnapshotManifest, TemplateSpec, Then,
};
use hutch_image::{Cache, Image};
use hutch_protocol::exec::{Exec, Outcome};
use hutch_protocol::files::WriteFile;
use hutch_units::{Mebibytes, SandboxId};

/// What waits for a condition gives up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the engine under test for a directory of sandboxes. Called again, it plays the restarted service.
pub(crate) type Maker = fn(&Path) -> Arc<dyn Engine>;

/// The disk of every machine.
const DISK: Mebibytes = Mebibytes(512);

/// A saved machine, and the disk that belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct SavedMachine {
    pub(crate) directory: PathBuf,
    /// The directory of the template that it is the difference to.
    pub(crate) template: Option<PathBuf>,
    pub(crate) disk: PathBuf,
    pub(crate) manifest: SnapshotManifest,
}

impl SavedMachine {
    pub(crate) fn origin(&self, identity: Identity) -> Origin {
        Origin::Saved { directory: self.directory.clone(), template: self.template.clone(), identity }
    }
}

/// One test's engine and machines.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) engine: Arc<dyn Engine>,
    maker: Maker,
    base_image: PathBuf,
    cache: Cache,
    directory: tempfile::TempDir,
    specs: Mutex<Vec<MachineSpec>>,
}

impl Lab {
    /// A lab, or why there can be none here.
    pub(crate) async fn open(maker: Maker) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        let cache = Cache::from_environment().map_err(|error| error.to_string())?;
        let image = Image::find("debian:13").map_err(|error| error.to_string())?;
        let built = image.built(&cache).map_err(|error| error.to_string())?;
        let built = built.ok_or_else(|| format!("the image {} is not built", image.name()))?;
        drop(built);
        let directory = tempfile::Builder::new().prefix("hutch-engine-").tempdir().unwrap();
        let sandboxes = directory.path().join("sandboxes");
        std::fs::create_dir(&sandboxes).unwrap();
        let engine = maker(&sandboxes);
        let missing =
            |finding: &hutch_engine::finding::Finding| finding.verdict == hutch_engine::finding::Verdict::Missing;
        if let Some(finding) = engine.probe().await.into_iter().find(missing) {
            return Err(format!("{}: {}", finding.subject, finding.found));
        }
        let base_image = image.path(&cache);
        Ok(Self { engine, maker, base_image, cache, directory, specs: Mutex::default() })
    }

    /// The engine of a service that was restarted.
    pub(crate) fn restarted(&self) -> Arc<dyn Engine> {
        (self.maker)(&self.directory.path().join("sandboxes"))
    }

    /// A place for something of the test's own.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What a new machine is to be, with its directory and an empty disk made.
    pub(crate) fn spec(&self) -> MachineSpec {
        self.spec_with(|disk| hutch_image::disk::create(&self.cache, disk, DISK).unwrap())
    }

    /// What another machine from a saved one is to be: with a copy of the disk.
    pub(crate) fn spec_from(&self, saved: &SavedMachine) -> MachineSpec {
        self.spec_with(|disk| hutch_image::disk::copy(&saved.disk, disk).unwrap())
    }

    fn spec_with(&self, make_disk: impl FnOnce(&Path)) -> MachineSpec {
        static SLOT: AtomicU32 = AtomicU32::new(0);
        let slot = SLOT.fetch_add(1, Ordering::Relaxed);
        let id = SandboxId::generate();
        let state_dir = self.directory.path().join("sandboxes").join(id.to_string());
        std::fs::create_dir(&state_dir).unwrap();
        let disk = state_dir.join("disk");
        make_disk(&disk);
        let spec = MachineSpec {
            id,
            state_dir,
            base_image: self.base_image.clone(),
            disk,
            memory: Mebibytes(number("HUTCH_MEMORY_MIB", 256).try_into().unwrap()),
            vcpu: 1,
            cpu_quota_percent: None,
            host_uid: 0x5800_0000 + std::process::id() % 0x1_0000 * 256 + slot,
            hostname: format!("box-{slot}"),
        };
        self.specs.lock().unwrap().push(spec.clone());
        spec
    }

    /// Starts a machine.
    pub(crate) async fn start(&self, spec: &MachineSpec) -> Machine {
        self.engine.start(spec, &Origin::Boot).await.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// Starts a machine where a saved one was.
    pub(crate) async fn start_from(&self, spec: &MachineSpec, saved: &SavedMachine, identity: Identity) -> Machine {
        let started = self.engine.start(spec, &saved.origin(identity)).await;
        started.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// Makes a template.
    pub(crate) async fn template(&self) -> SavedMachine {
        let spec = self.spec();
        let key = self.engine.template_key(&spec.base_image, spec.memory, DISK).await.unwrap();
        let directory = self.place(&key);
        let template = TemplateSpec {
            id: spec.id,
            state_dir: spec.state_dir.clone(),
            key,
            directory: directory.clone(),
            base_image: spec.base_image.clone(),
            disk: spec.disk.clone(),
            memory: spec.memory,
            vcpu: spec.vcpu,
            host_uid: spec.host_uid,
        };
        let made = self.engine.make_template(&template).await;
        let manifest = made.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert_eq!(self.artefacts(&spec).await, [], "a template leaves nothing but itself");
        assert!(!spec.disk.exists(), "the disk is the template's");
        let disk = directory.join(hutch_engine::snapshot::file::DISK);
        SavedMachine { directory, template: None, disk, manifest }
    }

    /// Saves a machine that comes from this template and lets it go on.
    pub(crate) async fn save_live(
        &self,
        spec: &MachineSpec,
        machine: &Machine,
        template: &SavedMachine,
        name: &str,
    ) -> SavedMachine {
        let (directory, disk) = (self.place(name), self.place(&format!("{name}.disk")));
        let save = Save { directory: directory.clone(), then: Then::GoOn { disk_copy: disk.clone() } };
        let saved = self.engine.save(spec, machine, &save).await;
        let manifest = saved.unwrap_or_else(|error| panic!("{}", chain(&error)));
        SavedMachine { directory, template: Some(template.directory.clone()), disk, manifest }
    }

    /// Saves a machine that comes from this template and ends it. Its disk stays in its place.
    pub(crate) async fn pause(
        &self,
        spec: &MachineSpec,
        machine: Machine,
        template: &SavedMachine,
        name: &str,
    ) -> Result<SavedMachine, SaveError> {
        let directory = self.place(name);
        let save = Save { directory: directory.clone(), then: Then::End };
        let manifest = self.engine.save(spec, &machine, &save).await?;
        assert!(machine.has_exited(), "its process is gone when the save returns");
        self.destroy(spec, machine).await;
        let template = Some(template.directory.clone());
        Ok(SavedMachine { directory, template, disk: spec.disk.clone(), manifest })
    }

    /// What is on the host of this machine, by looking at the host.
    pub(crate) async fn artefacts(&self, spec: &MachineSpec) -> Vec<Artefact> {
        let all = self.restarted().artefacts().await.unwrap();
        all.into_iter().filter(|artefact| artefact.sandbox == Some(spec.id)).collect()
    }

    /// Destroys a machine and makes sure that nothing is left.
    pub(crate) async fn destroy(&self, spec: &MachineSpec, machine: Machine) {
        let record = machine.record.clone();
        drop(machine);
        self.engine.destroy(spec, Some(&record)).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert_eq!(self.artefacts(spec).await, []);
        assert!(!Path::new("/proc").join(record.pid.to_string()).exists(), "a zombie of the kernel");
        self.engine.destroy(spec, Some(&record)).await.expect("a second time does nothing");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let specs = std::mem::take(&mut *self.specs.lock().unwrap());
        let engine = self.restarted();
        let clean = async move {
            for spec in specs {
                engine.destroy(&spec, None).await.ok();
            }
        };
        // Not on the test's own runtime, which does not block.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime.block_on(clean)).join().unwrap();
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Runs a shell command in the guest.
pub(crate) async fn shell(agent: &Client, text: &str) -> Collected {
    let execution = agent.exec(&Exec::shell(text)).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    execution.collect(1 << 20).await.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// Runs a shell command that must succeed, and returns what it printed.
pub(crate) async fn output(agent: &Client, text: &str) -> String {
    let collected = shell(agent, text).await;
    assert_eq!(collected.ended.outcome, Outcome::Exited { code: 0 }, "{text}: {collected:?}");
    String::from_utf8_lossy(&collected.stdout).trim_end().to_owned()
}

/// Copies a program into the guest.
pub(crate) async fn upload(agent: &Client, from: &Path, to: &str) {
    let content = std::fs::read(from).unwrap();
    let pieces: Vec<_> = content.chunks(1 << 20).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
    let (path, mode) = (to.into(), Some(0o755));
    let write = WriteFile { path, mode, user: None, size: None, max_bytes: None, sync: false };
    let written = agent.write_file(&write, stream::iter(pieces)).await;
    written.unwrap_or_else(|error| panic!("{}", chain(&error)));
}

/// A number from the environment.
pub(crate) fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
