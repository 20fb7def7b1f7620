//! A daemon in a process of its own that a test may kill, on a data directory that is clean when the test is over.
#![allow(dead_code, reason = "each test program uses its own part of the lab")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hutch_api::client::{Client, ClientError, Endpoint};
use hutch_api::{AuditReport, CreateSandbox, Execute, ExecuteResult, SandboxStatus};
use hutch_image::{Cache, Image};

/// The image that the tests use: the small one.
pub(crate) const IMAGE: &str = "debian:13";
/// What waits for a condition gives up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon.
#[derive(Debug)]
pub(crate) struct Lab {
    folder: tempfile::TempDir,
    process: Option<Child>,
    pub(crate) client: Client,
}

/// The programs of this build, made once, where the tests' own are.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let tests = std::env::current_exe().unwrap();
        let profile = tests.parent().and_then(Path::parent).unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "hutch-jail"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the launcher is not built");
        profile
    })
}

fn guest() -> PathBuf {
    let named = std::env::var_os("HUTCH_GUEST").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest"))
}

/// Why the tests of this ring cannot run here.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if !guest().join("guest.json").exists() {
        return Some("there is no guest; `cargo xtask guest` builds it".to_owned());
    }
    let cache = Cache::from_environment().map_err(|error| error.to_string()).ok()?;
    let image = Image::find(IMAGE).ok()?;
    match image.built(&cache) {
        Ok(Some(_)) => None,
        _ => Some(format!("the image {IMAGE} is not built")),
    }
}

impl Lab {
    /// A lab with a running daemon, or `None` and the reason on standard error.
    pub(crate) async fn open() -> Option<Self> {
        if let Some(reason) = missing() {
            // `./test` sets this: what it has prepared must be found.
            assert!(std::env::var_os("HUTCH_NO_SKIP").is_none(), "skipped: {reason}");
            eprintln!("skipped: {reason}");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("hutch-daemon-").tempdir().unwrap();
        let endpoint = Endpoint::parse("http://127.0.0.1:1", None, None).unwrap();
        let mut lab = Self { folder, process: None, client: Client::new(endpoint) };
        lab.start().await;
        Some(lab)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts the daemon and returns how long it took to be ready.
    pub(crate) async fn start(&mut self) -> Duration {
        let url = self.data().join("url");
        let _ = std::fs::remove_file(&url);
        let began = Instant::now();
        let log = std::fs::File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = Command::new(programs().join("examples/serve"));
        command.arg("127.0.0.1:0").arg(self.data()).arg(guest()).arg(programs().join("hutch-jail"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("`cargo test` builds the example `serve`"));
        let deadline = began + PATIENCE;
        loop {
            if let Ok(address) = std::fs::read_to_string(&url) {
                let key = std::fs::read_to_string(self.data().join("api-key")).unwrap();
                let endpoint = Endpoint::parse(address.trim(), Some(key.trim()), None).unwrap();
                self.client = Client::new(endpoint);
                if self.client.ready().await.is_ok_and(|readiness| readiness.ready) {
                    return began.elapsed();
                }
            }
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "the daemon is not ready:\n{}", self.tail());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The end of the daemon's log.
    pub(crate) fn tail(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().expect("the daemon runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// SIGTERM; waits for the end and returns whether it was an orderly one.
    pub(crate) fn stop(&mut self) -> bool {
        let mut process = self.process.take().expect("the daemon runs");
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        process.wait().unwrap().success()
    }

    /// The writable disk of a sandbox.
    pub(crate) fn disk(&self, sandbox: &str) -> PathBuf {
        self.data().join("sandboxes").join(sandbox).join("disk.ext4")
    }

    /// A small running sandbox; its id.
    pub(crate) async fn create(&self) -> String {
        self.try_create().await.unwrap_or_else(|error| panic!("{error}\n{}", self.tail()))
    }

    pub(crate) async fn try_create(&self) -> Result<String, ClientError> {
        let request = CreateSandbox {
            shape: "s-1vcpu-256mb".to_owned(),
            rootfs: Some(IMAGE.to_owned()),
            disk_mib: Some(256),
            ..CreateSandbox::default()
        };
        self.client.create_sandbox(&request).await.map(|created| created.sandbox.id.to_string())
    }

    /// Runs a text in the sandbox's shell.
    pub(crate) async fn shell(&self, sandbox: &str, text: &str) -> ExecuteResult {
        self.try_shell(sandbox, text).await.unwrap_or_else(|error| panic!("{text}: {error}\n{}", self.tail()))
    }

    pub(crate) async fn try_shell(&self, sandbox: &str, text: &str) -> Result<ExecuteResult, ClientError> {
        let request =
            Execute { cmd: "sh".to_owned(), args: vec!["-c".to_owned(), text.to_owned()], ..Execute::default() };
        self.client.execute(sandbox, &request).await.map(|answer| answer.result)
    }

    /// The processes of a sandbox on the host, by what the audit knows of them.
    pub(crate) async fn processes(&self, sandbox: &str) -> Vec<i32> {
        let report = self.client.audit().await.unwrap();
        let of_it = report.artefacts.iter().filter(|artefact| artefact.owner.as_deref() == Some(sandbox));
        let mut pids: Vec<i32> =
            of_it.filter_map(|artefact| artefact.name.strip_prefix("pid ")?.parse().ok()).collect();
        pids.sort_unstable();
        pids
    }

    /// Waits for a state.
    pub(crate) async fn until(&self, sandbox: &str, status: SandboxStatus) -> Duration {
        let began = Instant::now();
        loop {
            let view = self.client.sandbox(sandbox).await.unwrap();
            if view.status == status {
                return began.elapsed();
            }
            assert!(began.elapsed() < PATIENCE, "{sandbox} is {:?}, not {status:?}\n{}", view.status, self.tail());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the audit finds no orphan and returns it.
    pub(crate) async fn audited(&self) -> AuditReport {
        let began = Instant::now();
        loop {
            let report = self.client.audit().await.unwrap();
            // What is being taken down at the moment of the look may be seen as nobody's for an instant.
            if report.orphans().next().is_none() {
                return report;
            }
            assert!(began.elapsed() < PATIENCE, "{:?}\n{}", report.orphans().collect::<Vec<_>>(), self.tail());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until no sandbox has anything on the host. What is there for those to come is not meant: templates, and
    /// machines that wait.
    pub(crate) async fn until_bare(&self) {
        let every = |status| hutch_api::SandboxFilter { status: Some(status), ..hutch_api::SandboxFilter::default() };
        let began = Instant::now();
        loop {
            let mut known = std::collections::HashSet::new();
            for status in [SandboxStatus::Destroyed, SandboxStatus::Destroying, SandboxStatus::Failed] {
                let views = self.client.list_sandboxes(&every(status)).await.unwrap();
                known.extend(views.into_iter().map(|view| view.id.to_string()));
            }
            let report = self.audited().await;
            let is_left = |artefact: &&hutch_api::Artefact| {
                artefact.owner.as_ref().is_some_and(|owner| known.contains(owner) || owner.starts_with("sn-"))
            };
            let left: Vec<_> = report.artefacts.iter().filter(is_left).collect();
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{left:?}\n{}", self.tail());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Destroys every sandbox and makes sure that nothing is left on the host.
    pub(crate) async fn clean(&mut self) {
        for view in self.client.list_sandboxes(&hutch_api::SandboxFilter::default()).await.unwrap() {
            self.client.destroy_sandbox(&view.id.to_string()).await.unwrap();
        }
        for snapshot in self.client.list_snapshots(&hutch_api::SnapshotFilter::default()).await.unwrap() {
            self.client.delete_snapshot(&snapshot.id.to_string()).await.unwrap();
        }
        self.until_bare().await;
        assert!(self.stop(), "{}", self.tail());
        let left: Vec<_> = std::fs::read_dir(self.data().join("sandboxes")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Lab {
    /// A test that failed leaves no guest behind either: the next daemon on the directory is told to destroy all.
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
            if let Ok(entries) = std::fs::read_dir(self.data().join("sandboxes")) {
                let left: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
                if !left.is_empty() {
                    eprintln!("left by a failed test: {left:?}; log:\n{}", self.tail());
                    end_guests(&left);
                }
            }
        }
    }
}

/// Kills the processes in the cgroups that bear these names.
fn end_guests(sandboxes: &[PathBuf]) {
    let names: Vec<_> = sandboxes.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if names.iter().any(|name| groups.contains(name))
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
