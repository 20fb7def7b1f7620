//! An implementation of the contract in memory, to test the adapter and the client against each other.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hutch_api::http::{Limits, ServeOptions, router, serve};
use hutch_api::*;
use hutch_units::{SHAPES, SandboxId};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const KEY: &str = "skp_test";
pub const ID: &str = "sb-01arz3ndektsv4rrffq69g5fav";
pub const SNAPSHOT: &str = "sn-01arz3ndektsv4rrffq69g5fav";

#[derive(Debug, Default)]
pub struct Fake {
    pub files: Mutex<BTreeMap<String, Bytes>>,
    pub created: Mutex<Vec<CreateSandbox>>,
    pub filters: Mutex<Vec<SandboxFilter>>,
    pub snapshot_filters: Mutex<Vec<SnapshotFilter>>,
    pub forks: Mutex<Vec<ForkSandbox>>,
    pub usage_queries: Mutex<Vec<UsageQuery>>,
    /// The state that the sandbox is in, when it is not `running`.
    pub status: Mutex<Option<SandboxStatus>>,
    pub killed: Arc<AtomicUsize>,
    pub destroyed: AtomicUsize,
    /// How often the image `building:1` was asked about; it is ready at the third time.
    pub looks: AtomicUsize,
    /// How long a create takes.
    pub slow_create: Mutex<Duration>,
    pub observed: AtomicUsize,
    pub not_ready: Mutex<Option<String>>,
}

/// Counts when it is dropped: the fake's idea of killing a command.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn view() -> SandboxView {
    SandboxView {
        id: id(),
        status: SandboxStatus::Running,
        name: Some(hutch_units::SandboxName::parse("quick-otter").unwrap()),
        ip: None,
        shape: Some("s-1vcpu-256mb".into()),
        rootfs: Some("debian:13".into()),
        vcpu: 1,
        mem_mib: 256,
        disk_mib: 10240,
        spawn_ms: Some(412.5),
        created_at: moment(0),
        running_at: Some(moment(412)),
        destroyed_at: None,
        paused_at: None,
        last_resumed_at: None,
        ingress_enabled: false,
        ingress_url_template: None,
        region: None,
        egress: Some(vec![]),
        envs: Some(vec!["TOKEN".into()]),
        ssh_pubkeys: None,
        created_by: Some("account".into()),
        bandwidth_ingress_bytes: None,
        forked_from: None,
        auto_pause_after_seconds: None,
        auto_destroy_after_seconds: None,
        snapshot: None,
        labels: BTreeMap::from([("job".into(), "7".into())]),
        engine: Some("usermode".into()),
        isolation: Some(Isolation::UserKernel),
        network: Some("loopback".into()),
        expires_at: None,
        reason: None,
    }
}

pub fn id() -> SandboxId {
    ID.parse().unwrap()
}

/// The id of a copy.
pub fn copy_id(position: u32) -> SandboxId {
    format!("sb-01arz3ndektsv4rrffq69g5f{:02}", position + 1).parse().unwrap()
}

pub fn snapshot(parent: Option<&str>) -> SnapshotView {
    SnapshotView {
        id: SNAPSHOT.parse().unwrap(),
        name: None,
        description: None,
        status: SnapshotStatus::Ready,
        sandbox: id(),
        parent: parent.map(|parent| parent.parse().unwrap()),
        shape: Some("s-1vcpu-256mb".into()),
        rootfs: Some("debian:13".into()),
        mem_mib: 256,
        disk_mib: 10240,
        size_bytes: 12 << 20,
        created_at: moment(60_000),
        labels: BTreeMap::new(),
    }
}

/// The newest first: one and its parent.
fn snapshots() -> Vec<SnapshotView> {
    let named = |id: &str, name: &str, parent| SnapshotView {
        id: id.parse().unwrap(),
        name: Some(hutch_units::SnapshotName::parse(name).unwrap()),
        ..snapshot(parent)
    };
    vec![named("sn-01arz3ndektsv4rrffq69g5f01", "after-tests", Some(SNAPSHOT)), named(SNAPSHOT, "clean", None)]
}

fn find_snapshot(given: &SnapshotReference) -> Result<SnapshotView, Error> {
    let is = |view: &SnapshotView| match given {
        SnapshotReference::Id(id) => view.id == *id,
        SnapshotReference::Name(name) => view.name.as_ref() == Some(name),
    };
    snapshots().into_iter().find(is).ok_or_else(|| given.not_found())
}

fn used() -> SandboxUsage {
    SandboxUsage {
        id: id(),
        name: Some("quick-otter".into()),
        status: Some(SandboxStatus::Running),
        usage: Usage {
            active_seconds: 90.5,
            paused_seconds: 3600.0,
            cpu_seconds: 12.25,
            memory_mib_seconds: 23168.0,
            disk_mib_seconds: 184_525.0,
            network_in_bytes: 0,
            network_out_bytes: 0,
        },
    }
}

fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_unix_milliseconds(1_700_000_000_000 + milliseconds).unwrap()
}

fn image(name: &str) -> ImageView {
    ImageView {
        name: name.into(),
        status: ImageStatus::Building,
        default: name == "devbox:1",
        description: None,
        size_bytes: None,
        built_at: None,
        progress: Some(BuildProgress {
            step: "unpacking packages".into(),
            percent: 40,
            detail: Some("git".into()),
            started_at: moment(0),
        }),
        error: None,
    }
}

fn entry(path: &GuestPath, size: usize) -> FileEntry {
    FileEntry {
        name: path.as_str().rsplit('/').next().unwrap_or_default().into(),
        path: path.to_string(),
        kind: FileKind::File,
        size: size as u64,
        mode: 0o644,
        uid: 0,
        gid: 0,
        modified_at: moment(0),
        target: None,
    }
}

impl Fake {
    fn known(&self, sandbox: &SandboxReference) -> Result<(), Error> {
        let known = match sandbox {
            SandboxReference::Id(given) => *given == id(),
            SandboxReference::Name(name) => name.as_str() == "quick-otter",
        };
        if known { Ok(()) } else { Err(sandbox.not_found()) }
    }

    fn file(&self, path: &GuestPath) -> Result<Bytes, Error> {
        let files = self.files.lock().unwrap();
        files.get(path.as_str()).cloned().ok_or_else(|| Error::not_found("file", path.as_str()))
    }

    /// What the fake's commands do: `bytes` writes each argument (hexadecimal) as one piece, the rest is named after
    /// the case that it makes.
    fn events(&self, request: &Execute) -> Result<ExecuteStream, Error> {
        let exit = |exit: Exit| Ok(ExecuteEvent::Exit(exit));
        let out = |bytes: &'static [u8]| Ok(ExecuteEvent::Stdout(Bytes::from_static(bytes)));
        let running = Running(Arc::clone(&self.killed));
        let events: ExecuteStream = match request.cmd.as_str() {
            "true" => stream::iter([exit(Exit::default())]).boxed(),
            "cat" => {
                let input = request.stdin_bytes()?.unwrap_or_default();
                stream::iter([Ok(ExecuteEvent::Stdout(input)), exit(Exit::default())]).boxed()
            }
            "bytes" => {
                let pieces: Vec<_> =
                    request.args.iter().map(|piece| ExecuteEvent::Stdout(hexadecimal(piece))).collect();
                stream::iter(pieces).map(Ok).chain(stream::iter([exit(Exit::default())])).boxed()
            }
            "both" => stream::iter([
                out(b"out\n"),
                Ok(ExecuteEvent::Stderr(Bytes::from_static(b"err\n"))),
                exit(Exit { exit_code: 3, ..Exit::default() }),
            ])
            .boxed(),
            "flood" => {
                let piece = Bytes::from(vec![b'x'; 1 << 16]);
                let pieces = stream::repeat_with(move || Ok(ExecuteEvent::Stdout(piece.clone()))).take(1 << 9);
                pieces.chain(stream::iter([exit(Exit::default())])).boxed()
            }
            "timeout" => stream::iter([
                out(b"x"),
                exit(Exit {
                    exit_code: 124,
                    signal: Some("SIGKILL".into()),
                    timed_out: true,
                    stdout_truncated: true,
                    ..Exit::default()
                }),
            ])
            .boxed(),
            "forever" => stream::iter([out(b"begun\n")])
                .chain(stream::pending())
                .map(move |event| {
                    let _ = &running;
                    event
                })
                .boxed(),
            "silent" => stream::pending()
                .map(move |event| {
                    let _ = &running;
                    event
                })
                .boxed(),
            "lost" => stream::iter([out(b"half"), Err(Error::new(ErrorKind::SandboxLost, "the kernel died"))]).boxed(),
            "paused" => {
                let error = Error::new(ErrorKind::SandboxPaused, "the sandbox was paused while the command ran");
                stream::iter([out(b"half"), Err(error)]).boxed()
            }
            "cut" => stream::iter([out(b"half")]).boxed(),
            "panic" => panic!("on purpose"),
            missing => {
                let error = Some(format!("{missing}: no such program"));
                stream::iter([exit(Exit { exit_code: 127, error, ..Exit::default() })]).boxed()
            }
        };
        Ok(events)
    }
}

fn hexadecimal(text: &str) -> Bytes {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

impl Operations for Fake {
    async fn authenticate(&self, key: &str) -> Result<Caller, Error> {
        match key {
            KEY => Ok(Caller { account: "account".into(), key: "key".into() }),
            _ => Err(Error::new(ErrorKind::Unauthenticated, "this API key is not known")),
        }
    }

    fn observe(&self, _: OperationId, _: u16, _: Duration) {
        self.observed.fetch_add(1, Ordering::SeqCst);
    }

    async fn ready(&self) -> Readiness {
        let reason = self.not_ready.lock().unwrap().clone();
        Readiness { ready: reason.is_none(), reason }
    }

    async fn metrics(&self, _: &Caller) -> Result<String, Error> {
        Ok("hutch_sandboxes 1\n".into())
    }

    async fn who_am_i(&self, caller: &Caller) -> Result<WhoAmI, Error> {
        Ok(WhoAmI { user_id: caller.account.clone(), stats: Stats { running: 1, total: 1, ..Stats::default() } })
    }

    async fn shapes(&self) -> Result<Vec<ShapeView>, Error> {
        Ok(SHAPES.iter().map(ShapeView::from).collect())
    }

    async fn rootfs(&self) -> Result<RootfsCatalogue, Error> {
        Ok(RootfsCatalogue { rootfs: vec!["devbox:1".into()], default: "devbox:1".into(), entries: vec![] })
    }

    async fn hosts(&self, _: &Caller) -> Result<Vec<HostView>, Error> {
        Ok(vec![HostView { id: "h".into(), status: HostStatus::Active, free_mib: 1, vm_count: 1, rootfses: None }])
    }

    async fn doctor(&self, _: &Caller) -> Result<DoctorReport, Error> {
        Ok(DoctorReport {
            findings: vec![Finding {
                check: "network".into(),
                status: CheckStatus::Warning,
                found: "loopback only".into(),
                fix: None,
            }],
        })
    }

    async fn audit(&self, _: &Caller) -> Result<AuditReport, Error> {
        let artefact = |name: &str, owner: Option<&str>| Artefact {
            kind: ArtefactKind::Cgroup,
            name: name.into(),
            owner: owner.map(str::to_owned),
            detail: None,
        };
        Ok(AuditReport { artefacts: vec![artefact("hutch/a", Some(ID)), artefact("hutch/b", None)] })
    }

    async fn images(&self, _: &Caller) -> Result<Vec<ImageView>, Error> {
        Ok(vec![image("debian:13"), image("devbox:1")])
    }

    async fn image(&self, _: &Caller, name: &str) -> Result<ImageView, Error> {
        if name == "building:1" && self.looks.fetch_add(1, Ordering::SeqCst) >= 2 {
            return Ok(ImageView { status: ImageStatus::Ready, progress: None, ..image(name) });
        }
        if name == "broken:1" {
            let error = Some("no space left".into());
            return Ok(ImageView { status: ImageStatus::Failed, progress: None, error, ..image(name) });
        }
        Ok(image(name))
    }

    async fn build_image(&self, _: &Caller, name: &str) -> Result<ImageView, Error> {
        Ok(image(name))
    }

    async fn create_sandbox(&self, _: &Caller, request: CreateSandbox) -> Result<CreatedSandbox, Error> {
        if request.rootfs.as_deref() == Some("building:1") && self.looks.load(Ordering::SeqCst) < 3 {
            return Err(Error::new(ErrorKind::ImageBuilding, "the image building:1 is being built: 40 % done")
                .with_retry_after(Duration::from_millis(1500)));
        }
        if request.shape == "s-8vcpu-16gb" {
            let message = "the shape s-8vcpu-16gb is not for this account, choices: [s-1vcpu-256mb]";
            return Err(Error::new(ErrorKind::Forbidden, message).with_field("shape", message));
        }
        if request.name.as_deref() == Some("quick-otter") {
            return Err(
                Error::new(ErrorKind::NameTaken, "the name quick-otter is in use").with_field("name", "is in use")
            );
        }
        if request.name.as_deref() == Some("unlucky") {
            return Err(Error::internal(&std::io::Error::other("secret path /x")));
        }
        self.created.lock().unwrap().push(request);
        let time = *self.slow_create.lock().unwrap();
        tokio::time::sleep(time).await;
        Ok(CreatedSandbox { sandbox: view(), bandwidth_quota_bytes: -1, replayed: None })
    }

    async fn list_sandboxes(
        &self,
        _: &Caller,
        filter: SandboxFilter,
        page: PageRequest,
    ) -> Result<Page<SandboxView>, Error> {
        let filter_has_labels = filter.labels.keys().any(|key| key == "hutch.run");
        self.filters.lock().unwrap().push(filter);
        // A caller with a label asks for the one that it marked.
        let total = if filter_has_labels { self.created.lock().unwrap().len().min(1) as u64 } else { 1203 };
        let count = page.limit.min(total - page.offset.min(total));
        Ok(Page::new((0..count).map(|_| view()).collect(), total, page))
    }

    async fn sandbox_by_ip(&self, _: &Caller, ip: &str) -> Result<SandboxView, Error> {
        if ip == "10.0.0.1" { Ok(view()) } else { Err(Error::not_found("sandbox with the address", ip)) }
    }

    async fn sandbox(&self, _: &Caller, sandbox: &SandboxReference) -> Result<SandboxView, Error> {
        self.known(sandbox)?;
        let paused_at = self.status.lock().unwrap().map(|_| moment(60_000));
        Ok(SandboxView { status: self.status.lock().unwrap().unwrap_or(SandboxStatus::Running), paused_at, ..view() })
    }

    async fn update_sandbox(
        &self,
        _: &Caller,
        sandbox: &SandboxReference,
        change: UpdateSandbox,
    ) -> Result<SandboxView, Error> {
        self.known(sandbox)?;
        Ok(SandboxView { labels: change.labels.unwrap_or_else(|| view().labels), ..view() })
    }

    async fn destroy_sandbox(&self, _: &Caller, sandbox: &SandboxReference) -> Result<DestroyedSandbox, Error> {
        self.known(sandbox)?;
        self.destroyed.fetch_add(1, Ordering::SeqCst);
        Ok(DestroyedSandbox { id: id(), status: SandboxStatus::Destroyed })
    }

    async fn pause_sandbox(&self, _: &Caller, sandbox: &SandboxReference, until: Until) -> Result<SandboxView, Error> {
        self.known(sandbox)?;
        let status = if until == Until::Settled { SandboxStatus::Paused } else { SandboxStatus::Pausing };
        *self.status.lock().unwrap() = Some(SandboxStatus::Paused);
        Ok(SandboxView { status, ..view() })
    }

    async fn resume_sandbox(&self, _: &Caller, sandbox: &SandboxReference, until: Until) -> Result<SandboxView, Error> {
        self.known(sandbox)?;
        let status = if until == Until::Settled { SandboxStatus::Running } else { SandboxStatus::Resuming };
        *self.status.lock().unwrap() = None;
        Ok(SandboxView { status, last_resumed_at: Some(moment(90_000)), ..view() })
    }

    async fn fork_sandbox(
        &self,
        _: &Caller,
        sandbox: &SandboxReference,
        request: ForkSandbox,
    ) -> Result<Vec<SandboxView>, Error> {
        self.known(sandbox)?;
        let copy = |position| SandboxView {
            id: copy_id(position),
            name: request.name_of(position).map(|name| hutch_units::SandboxName::parse(&name).unwrap()),
            forked_from: Some(id()),
            ..view()
        };
        let copies = (0..request.copies()).map(copy).collect();
        self.forks.lock().unwrap().push(request);
        Ok(copies)
    }

    async fn create_snapshot(
        &self,
        _: &Caller,
        sandbox: &SandboxReference,
        request: CreateSnapshot,
    ) -> Result<SnapshotView, Error> {
        self.known(sandbox)?;
        if request.name.as_deref() == Some("taken") {
            return Err(
                Error::new(ErrorKind::NameTaken, "another snapshot is called \"taken\"").with_field("name", "is taken")
            );
        }
        let name = request.name.map(|name| hutch_units::SnapshotName::parse(&name).unwrap());
        Ok(SnapshotView { name, description: request.description, labels: request.labels, ..snapshot(None) })
    }

    async fn list_snapshots(
        &self,
        _: &Caller,
        filter: SnapshotFilter,
        page: PageRequest,
    ) -> Result<Page<SnapshotView>, Error> {
        self.snapshot_filters.lock().unwrap().push(filter);
        Ok(page.cut(snapshots()))
    }

    async fn snapshot(&self, _: &Caller, given: &SnapshotReference) -> Result<SnapshotView, Error> {
        find_snapshot(given)
    }

    async fn delete_snapshot(&self, _: &Caller, given: &SnapshotReference) -> Result<DeletedSnapshot, Error> {
        Ok(DeletedSnapshot { id: find_snapshot(given)?.id, deleted: true })
    }

    async fn restore_snapshot(
        &self,
        _: &Caller,
        sandbox: &SandboxReference,
        given: &SnapshotReference,
    ) -> Result<SandboxView, Error> {
        self.known(sandbox)?;
        Ok(SandboxView { snapshot: Some(find_snapshot(given)?.id), ..view() })
    }

    async fn usage(&self, _: &Caller, query: UsageQuery) -> Result<UsageReport, Error> {
        let one = used();
        let page = query.page.cut(vec![one.clone()]);
        let (from, to) = (query.period.from, query.period.to.unwrap_or(moment(3_600_000)));
        self.usage_queries.lock().unwrap().push(query);
        Ok(UsageReport { from, to, total: one.usage, sandboxes: page.data, pagination: page.pagination })
    }

    async fn sandbox_usage(&self, _: &Caller, sandbox: &SandboxReference, _: Period) -> Result<SandboxUsage, Error> {
        self.known(sandbox).map(|()| used())
    }

    async fn execute(&self, _: &Caller, sandbox: &SandboxReference, request: Execute) -> Result<ExecuteStream, Error> {
        self.known(sandbox)?;
        self.events(&request)
    }

    async fn write_file(
        &self,
        _: &Caller,
        sandbox: &SandboxReference,
        file: WriteFile,
        mut content: ByteStream,
    ) -> Result<Written, Error> {
        self.known(sandbox)?;
        if file.path.as_str() == "/full" {
            return Err(Error::new(ErrorKind::StorageFull, "the sandbox's disk is full"));
        }
        let mut whole = Vec::new();
        while let Some(piece) = content.next().await {
            whole.extend_from_slice(&piece?);
        }
        let bytes = whole.len() as u64;
        self.files.lock().unwrap().insert(file.path.to_string(), whole.into());
        Ok(Written { bytes, path: file.path.to_string() })
    }

    async fn read_file(&self, _: &Caller, sandbox: &SandboxReference, file: ReadFile) -> Result<FileBody, Error> {
        self.known(sandbox)?;
        let whole = self.file(&file.path)?;
        let size = whole.len() as u64;
        let outside = || Error::range_outside(size);
        let (offset, length) = file.range.map_or(Some((0, size)), |range| range.resolve(size)).ok_or_else(outside)?;
        let part = whole.slice(usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap());
        // A file that becomes shorter while it is read.
        let part = if file.path.as_str() == "/shrinks" { part.slice(..part.len() / 2) } else { part };
        // What was written is sent before the stream goes on.
        let end = stream::once(async {
            tokio::task::yield_now().await;
            Ok(Bytes::new())
        });
        Ok(FileBody { size, offset, length, content: stream::iter([Ok(part)]).chain(end).boxed() })
    }

    async fn remove_file(&self, _: &Caller, sandbox: &SandboxReference, file: RemoveFile) -> Result<Deleted, Error> {
        self.known(sandbox)?;
        self.file(&file.path)?;
        self.files.lock().unwrap().remove(file.path.as_str());
        Ok(Deleted { path: file.path.to_string(), deleted: true })
    }

    async fn stat_file(&self, _: &Caller, sandbox: &SandboxReference, path: GuestPath) -> Result<FileEntry, Error> {
        self.known(sandbox)?;
        Ok(entry(&path, self.file(&path)?.len()))
    }

    async fn list_files(
        &self,
        _: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
        page: PageRequest,
    ) -> Result<Page<FileEntry>, Error> {
        self.known(sandbox)?;
        Ok(page.cut(vec![entry(&path, 1)]))
    }

    async fn move_file(&self, _: &Caller, sandbox: &SandboxReference, request: MoveFile) -> Result<Moved, Error> {
        self.known(sandbox)?;
        let content = self.file(&request.from)?;
        let mut files = self.files.lock().unwrap();
        files.remove(request.from.as_str());
        files.insert(request.to.to_string(), content);
        Ok(Moved { path: request.to.to_string() })
    }

    async fn make_directory(
        &self,
        _: &Caller,
        sandbox: &SandboxReference,
        request: MakeDirectory,
    ) -> Result<Created, Error> {
        self.known(sandbox)?;
        Ok(Created { path: request.path.to_string(), created: true })
    }

    async fn read_archive(&self, _: &Caller, sandbox: &SandboxReference, _: GuestPath) -> Result<ByteStream, Error> {
        self.known(sandbox)?;
        Ok(stream::iter([Ok(Bytes::from_static(b"tar"))]).boxed())
    }

    async fn write_archive(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
        content: ByteStream,
    ) -> Result<Written, Error> {
        self.write_file(caller, sandbox, WriteFile { path, mode: None, length: None }, content).await
    }
}

/// The fake behind a real socket.
pub struct Server {
    pub fake: Arc<Fake>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Self {
        let options = ServeOptions { grace: Duration::from_secs(20), ..ServeOptions::default() };
        Self::start_with(Limits { heartbeat: Duration::from_millis(50), ..Limits::default() }, options).await
    }

    pub async fn start_with(limits: Limits, options: ServeOptions) -> Self {
        let fake = Arc::new(Fake::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = router(Arc::clone(&fake), limits);
        let task = tokio::spawn(serve(listener, router, options, async move {
            let _ = stopped.await;
        }));
        Self { fake, address, stop: Some(stop), task }
    }

    pub fn shut_down(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until so many commands were killed.
    pub async fn until_killed(&self, count: usize) {
        let killed = async {
            while self.fake.killed.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), killed).await.expect("the command was not killed");
    }
}
