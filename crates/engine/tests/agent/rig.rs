//! An agent to test, and a client of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hutch_engine::agent::{Client, ClientError, Collected, Options};
use hutch_protocol::exec::Exec;
use hutch_protocol::files::{Delete, MakeDirectory};
use hutch_protocol::machine::Configure;

/// No test waits longer than this for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Output that a test is willing to hold.
pub(crate) const LIMIT: usize = 64 << 20;

/// An agent, and a directory in its world that is removed in the end.
pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) directory: String,
    agent: Option<Process>,
    socket: PathBuf,
    home: tempfile::TempDir,
}

/// The agent as a process of this machine.
struct Process {
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The agent, asked to end, removes its control groups; `unshare` passes the end on.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::yield_now();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Rig {
    /// An agent, configured.
    pub(crate) async fn new() -> Self {
        Self::start(Options::default(), true).await
    }

    /// An agent whose client has these options; configured or not.
    pub(crate) async fn start(options: Options, configured: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (agent, socket) = match std::env::var_os("HUTCH_AGENT_SOCKET") {
            Some(socket) => (None, PathBuf::from(socket)),
            None => {
                let socket = home.path().join("agent.sock");
                (Some(spawn(&socket, home.path())), socket)
            }
        };
        let client = connect(&socket, options).await.unwrap();
        let mut rig = Self { client, directory: String::new(), agent, socket, home };
        if configured {
            rig.client.configure(&configuration()).await.unwrap();
            rig.make_directory().await;
        }
        rig
    }

    /// Whether the agent is a process that a test may stop or kill.
    pub(crate) fn pid(&self) -> Option<rustix::process::Pid> {
        self.agent.as_ref().map(|agent| rustix::process::Pid::from_child(&agent.child))
    }

    /// The port for self signals on the loopback interface of the agent's world.
    pub(crate) fn signal_port(&self) -> u16 {
        match self.agent {
            Some(_) => std::fs::read_to_string(self.home.path().join("port")).unwrap().parse().unwrap(),
            None => 1029,
        }
    }

    /// The FIFO for self signals in the agent's world.
    pub(crate) fn signal_fifo(&self) -> PathBuf {
        match self.agent {
            Some(_) => self.home.path().join("self"),
            None => "/run/self".into(),
        }
    }

    /// The same agent with another connection, which waits its turn until the first has ended.
    pub(crate) async fn reconnect(self) -> Self {
        let Self { client, directory, agent, socket, home } = self;
        let path = socket.clone();
        let next = tokio::spawn(async move { connect(&path, Options::default()).await });
        tokio::task::yield_now().await;
        client.close();
        drop(client);
        let client = next.await.unwrap().unwrap();
        Self { client, directory, agent, socket, home }
    }

    /// A path in the test's directory.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, exec: Exec) -> Result<Collected, ClientError> {
        tokio::time::timeout(PATIENCE, async { self.client.exec(&exec).await?.collect(LIMIT).await })
            .await
            .unwrap_or_else(|_| panic!("no end of {exec:?}"))
    }

    /// Runs a script that must succeed; its output.
    pub(crate) async fn shell(&self, script: &str) -> String {
        let collected = self.run(Exec::shell(script)).await.unwrap();
        let stderr = String::from_utf8_lossy(&collected.stderr);
        let success = hutch_protocol::exec::Outcome::Exited { code: 0 };
        assert_eq!(collected.ended.outcome, success, "{script}: {stderr}");
        String::from_utf8(collected.stdout.to_vec()).unwrap()
    }

    /// Waits until a script prints what is expected.
    pub(crate) async fn until(&self, script: &str, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.shell(script).await;
            if output.trim() == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{script}: {output:?} instead of {expected:?}");
        }
    }

    async fn make_directory(&mut self) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.directory = format!("/tmp/hutch-agent-test-{}-{number}", std::process::id());
        let request = MakeDirectory { path: self.directory.as_str().into(), mode: Some(0o777), user: None };
        self.client.make_directory(&request).await.unwrap();
    }

    /// Removes what the test has made in the agent's world. Not done for a test that failed.
    pub(crate) async fn finish(self) {
        let path = self.directory.as_str().into();
        self.client.delete(&Delete { path, recursive: true }).await.unwrap();
    }
}

/// What a sandbox is told in these tests.
pub(crate) fn configuration() -> Configure {
    Configure {
        hostname: "sandbox".into(),
        entropy: vec![42; 64],
        env: BTreeMap::from([("FROM_SANDBOX".to_owned(), "sandbox".into())]),
        ..Configure::default()
    }
}

async fn connect(socket: &Path, options: Options) -> Result<Client, ClientError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Client::connect(socket, options, PATIENCE).await {
            // The agent has not made its socket yet.
            Err(ClientError::Connect { .. }) if Instant::now() < deadline => tokio::task::yield_now().await,
            result => return result,
        }
    }
}

fn spawn(socket: &Path, signals: &Path) -> Process {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(program()).arg("--serve").arg(socket);
    command.arg("--self").arg(signals);
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    Process { child }
}

/// The agent's program beside this test's, built if need be.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let directory = test.parent().and_then(Path::parent).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "hutch-agent"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the agent cannot be built");
        directory.join("hutch-agent")
    })
}
