//! Runs the probe program in a jail made by the launcher.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hutch_jail::cgroup::{Group, Layout};
use hutch_jail::report::{Outcome, Report, Started};
use hutch_jail::specification::{Descriptor, Limits, Source, Specification};
use hutch_units::{Bytes, SandboxId};
use rustix::process::{Pid, PidfdFlags, Signal, WaitIdOptions, WaitIdStatus};

/// Why the tests of this ring cannot run here; `None` when they can.
pub(crate) fn unfit() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if let Err(error) = Layout::discover().and_then(|layout| layout.prepare()) {
        return Some(format!("no usable cgroups: {error}"));
    }
    probe().err()
}

/// Says why a test does nothing here and returns from it.
#[macro_export]
macro_rules! skip_if_unfit {
    () => {
        if let Some(reason) = support::unfit() {
            assert!(std::env::var_os("HUTCH_NO_SKIP").is_none(), "skipped: {reason}");
            eprintln!("skipped: {reason}");
            return;
        }
    };
}

/// The probe program: the one that HUTCH_PROBE names (for machines without a compiler), else built once with the C
/// compiler that the guest kernel needs too.
fn probe() -> Result<PathBuf, String> {
    static PROBE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        if let Some(program) = std::env::var_os("HUTCH_PROBE") {
            return Ok(PathBuf::from(program));
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe/probe.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("probe-{}", std::process::id()));
        let mut compiler = Command::new("gcc");
        compiler.args(["-static", "-O1", "-Wall", "-o"]).arg(&program).arg(source);
        let output = compiler.output().map_err(|error| format!("no C compiler: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(program) } else { Err(format!("the probe does not compile: {said}")) }
    };
    PROBE.get_or_init(build).clone()
}

/// A jail with the probe in it.
#[derive(Debug)]
pub(crate) struct Jail {
    pub(crate) id: SandboxId,
    pub(crate) started: Started,
    pub(crate) group: Group,
    pub(crate) directory: tempfile::TempDir,
    pidfd: OwnedFd,
    output: fs::File,
}

/// What the tests' jails may use.
pub(crate) const LIMITS: Limits = Limits {
    memory: Bytes(64 << 20),
    cpu_percent: 100,
    cpu_weight: 1,
    processes: 50,
    open_files: 256,
    file_size: Bytes(1 << 30),
};

/// A specification of the probe in this mode, with its files in this directory.
pub(crate) fn specification(directory: &Path, arguments: &[&str]) -> Specification {
    static SLOT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let slot = SLOT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id = SandboxId::generate();
    fs::write(directory.join("image"), vec![b'i'; 8192]).unwrap();
    fs::write(directory.join("disk"), vec![b'd'; 8192]).unwrap();
    let source = |number, source| Descriptor { number, source };
    Specification {
        format: Specification::FORMAT.to_owned(),
        version: Specification::VERSION,
        id,
        uid: 0x5000_0000 + std::process::id() * 64 + slot,
        program: probe().unwrap(),
        arguments: ["probe"].iter().chain(arguments).map(ToString::to_string).collect(),
        environment: vec!["TERM=linux".to_owned()],
        mount_point: directory.to_owned(),
        descriptors: vec![
            source(3, Source::ReadOnly { path: directory.join("image") }),
            source(4, Source::ReadWrite { path: directory.join("disk") }),
            source(5, Source::Memory { size: Bytes(1 << 20) }),
            source(6, Source::Listener { path: directory.join("agent.sock") }),
        ],
        group: Layout::discover().unwrap().group("test", &id.to_string()),
        limits: LIMITS,
    }
}

/// Runs the launcher; the probe's output goes to the file.
pub(crate) fn launch(specification: &Specification, output: &fs::File) -> Report {
    // The probe becomes our child when the launcher ends, so that its status can be had.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_hutch-jail"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(output.try_clone().unwrap())
        .spawn()
        .unwrap();
    let text = serde_json::to_vec(specification).unwrap();
    launcher.stdin.take().unwrap().write_all(&text).unwrap();
    let output = launcher.wait_with_output().unwrap();
    Report::parse(&output.stdout).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stdout)))
}

/// Runs the launcher with a standard output whose other end is closed.
pub(crate) fn launch_unheard(specification: &Specification) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_hutch-jail"))
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let text = serde_json::to_vec(specification).unwrap();
    launcher.stdin.take().unwrap().write_all(&text).unwrap();
    assert!(!launcher.wait().unwrap().success());
}

impl Jail {
    /// Starts the probe in a jail of its own.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        Self::start_in(&path, directory, arguments)
    }

    /// Starts the probe with its files at this path in a directory.
    pub(crate) fn start_in(path: &Path, directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        let specification = specification(path, arguments);
        let output = tempfile::tempfile().unwrap();
        let report = launch(&specification, &output);
        let Outcome::Started(started) = report.outcome else { panic!("{:?}", report.outcome) };
        let pid = Pid::from_raw(started.pid.cast_signed()).unwrap();
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Self { id: specification.id, started, group: specification.group, directory, pidfd, output }
    }

    /// What the probe has printed so far.
    pub(crate) fn output(&mut self) -> String {
        let mut text = Vec::new();
        // Its position is shared with the probe, which appends: back to the end afterwards.
        self.output.seek(SeekFrom::Start(0)).unwrap();
        self.output.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits until the probe has printed this.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let output = self.output();
            if output.contains(text) {
                return output;
            }
            assert!(Instant::now() < deadline, "no {text:?} in {output:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of the probe.
    pub(crate) fn wait(&self) -> WaitIdStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        let id = rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&self.pidfd));
        loop {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if let Some(status) = rustix::process::waitid(id.clone(), options).unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the probe does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads a file of the probe's `/proc` directory.
    pub(crate) fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.started.pid)).unwrap()
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL).ok();
        let id = rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&self.pidfd));
        rustix::process::waitid(id, WaitIdOptions::EXITED).ok();
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.group.remove().is_err() {
            assert!(Instant::now() < deadline, "the cgroup of {} stays busy", self.id);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
