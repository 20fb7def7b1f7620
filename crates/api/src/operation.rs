//! The contract as a trait.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use crate::{
    AuditReport, CreateSandbox, CreateSnapshot, Created, CreatedSandbox, Deleted, DeletedSnapshot, DestroyedSandbox,
    DoctorReport, Error, Execute, ExecuteEvent, FileBody, FileEntry, ForkSandbox, GuestPath, HostView, ImageView,
    MakeDirectory, MoveFile, Moved, OperationId, Page, PageRequest, Period, ReadFile, Readiness, RemoveFile,
    RootfsCatalogue, SandboxFilter, SandboxReference, SandboxUsage, SandboxView, ShapeView, SnapshotFilter,
    SnapshotReference, SnapshotView, Until, UpdateSandbox, UsageQuery, UsageReport, WhoAmI, WriteFile, Written,
};

/// Bytes on their way. An error ends the stream.
pub type ByteStream = BoxStream<'static, Result<Bytes, Error>>;

/// A running command's events. **Dropping the stream kills the command**: that is how a caller who goes away ends
/// it.
pub type ExecuteStream = BoxStream<'static, Result<ExecuteEvent, Error>>;

/// Who calls: the account that a key belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The account's id.
    pub account: String,
    /// The key's id (never the key), for the log.
    pub key: String,
}

/// What the service can do. One method for each row of [`OPERATIONS`](crate::OPERATIONS) but `healthz`.
///
/// The adapter has parsed and validated what it hands over: lengths, characters and ranges that need no knowledge of
/// the service's state. What belongs to another account than the caller's is "not found".
///
/// A returned future is dropped when its caller goes away. An operation that must not stop half-way (create, destroy)
/// therefore does its work in a task of its own and only waits for it here.
pub trait Operations: Send + Sync + 'static {
    /// Whose key this is; [`ErrorKind::Unauthenticated`](crate::ErrorKind::Unauthenticated) when nobody's.
    fn authenticate(&self, key: &str) -> impl Future<Output = Result<Caller, Error>> + Send;

    /// Told of each answer, to count it: its status and how long it took until the head of the answer was ready.
    fn observe(&self, operation: OperationId, status: u16, elapsed: Duration) {
        let _ = (operation, status, elapsed);
    }

    /// Whether sandboxes can be created now.
    fn ready(&self) -> impl Future<Output = Readiness> + Send;
    /// Metrics in the text form of Prometheus.
    fn metrics(&self, caller: &Caller) -> impl Future<Output = Result<String, Error>> + Send;
    /// Who the caller is.
    fn who_am_i(&self, caller: &Caller) -> impl Future<Output = Result<WhoAmI, Error>> + Send;
    /// Every shape.
    fn shapes(&self) -> impl Future<Output = Result<Vec<ShapeView>, Error>> + Send;
    /// Every root file system.
    fn rootfs(&self) -> impl Future<Output = Result<RootfsCatalogue, Error>> + Send;
    /// Every machine.
    fn hosts(&self, caller: &Caller) -> impl Future<Output = Result<Vec<HostView>, Error>> + Send;
    /// The prerequisites of this machine.
    fn doctor(&self, caller: &Caller) -> impl Future<Output = Result<DoctorReport, Error>> + Send;
    /// Every artefact on this machine.
    fn audit(&self, caller: &Caller) -> impl Future<Output = Result<AuditReport, Error>> + Send;

    /// Every image and how far it is.
    fn images(&self, caller: &Caller) -> impl Future<Output = Result<Vec<ImageView>, Error>> + Send;
    /// One image.
    fn image(&self, caller: &Caller, name: &str) -> impl Future<Output = Result<ImageView, Error>> + Send;
    /// Begins to build an image, unless it is ready or being built, and answers at once with its state.
    fn build_image(&self, caller: &Caller, name: &str) -> impl Future<Output = Result<ImageView, Error>> + Send;

    /// Creates a sandbox and answers when it runs.
    fn create_sandbox(
        &self,
        caller: &Caller,
        request: CreateSandbox,
    ) -> impl Future<Output = Result<CreatedSandbox, Error>> + Send;
    /// The account's sandboxes, newest first.
    fn list_sandboxes(
        &self,
        caller: &Caller,
        filter: SandboxFilter,
        page: PageRequest,
    ) -> impl Future<Output = Result<Page<SandboxView>, Error>> + Send;
    /// The sandbox that has this address.
    fn sandbox_by_ip(&self, caller: &Caller, ip: &str) -> impl Future<Output = Result<SandboxView, Error>> + Send;
    /// One sandbox.
    fn sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
    ) -> impl Future<Output = Result<SandboxView, Error>> + Send;
    /// Changes a sandbox.
    fn update_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        change: UpdateSandbox,
    ) -> impl Future<Output = Result<SandboxView, Error>> + Send;
    /// Destroys a sandbox. Repeating it is no error.
    fn destroy_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
    ) -> impl Future<Output = Result<DestroyedSandbox, Error>> + Send;

    /// Saves a sandbox's memory and ends its processes. One that is paused is answered as it is.
    ///
    /// What is attached to it, like a running command, ends with
    /// [`ErrorKind::SandboxPaused`](crate::ErrorKind::SandboxPaused), never with an exit code.
    fn pause_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        until: Until,
    ) -> impl Future<Output = Result<SandboxView, Error>> + Send;
    /// Brings a paused sandbox back, or one in the state `error`. One that runs is answered as it is; one that is on the
    /// way to be paused is paused first.
    fn resume_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        until: Until,
    ) -> impl Future<Output = Result<SandboxView, Error>> + Send;
    /// Copies a paused or running sandbox [`ForkSandbox::copies`] times. All or none: when one copy cannot be made, the
    /// others are taken back. Answers when the copies run, or are paused with `start_paused`.
    fn fork_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: ForkSandbox,
    ) -> impl Future<Output = Result<Vec<SandboxView>, Error>> + Send;

    /// Takes a snapshot of a running or paused sandbox and answers when it is whole.
    fn create_snapshot(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: CreateSnapshot,
    ) -> impl Future<Output = Result<SnapshotView, Error>> + Send;
    /// The account's snapshots, newest first. A filter for a sandbox that does not exist lets nothing through.
    fn list_snapshots(
        &self,
        caller: &Caller,
        filter: SnapshotFilter,
        page: PageRequest,
    ) -> impl Future<Output = Result<Page<SnapshotView>, Error>> + Send;
    /// One snapshot.
    fn snapshot(
        &self,
        caller: &Caller,
        snapshot: &SnapshotReference,
    ) -> impl Future<Output = Result<SnapshotView, Error>> + Send;
    /// Deletes a snapshot. What still needs its files keeps them.
    fn delete_snapshot(
        &self,
        caller: &Caller,
        snapshot: &SnapshotReference,
    ) -> impl Future<Output = Result<DeletedSnapshot, Error>> + Send;
    /// Puts a sandbox back to a snapshot: memory, processes and disk. Answers when it runs. What it was is lost.
    fn restore_snapshot(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        snapshot: &SnapshotReference,
    ) -> impl Future<Output = Result<SandboxView, Error>> + Send;

    /// What the account's sandboxes used.
    fn usage(&self, caller: &Caller, query: UsageQuery) -> impl Future<Output = Result<UsageReport, Error>> + Send;
    /// What one sandbox used.
    fn sandbox_usage(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        period: Period,
    ) -> impl Future<Output = Result<SandboxUsage, Error>> + Send;

    /// Starts a command. The future ends when the command was started or could not be: a program that does not exist
    /// is an [`Exit`](crate::Exit) with `error`, not an error of the operation. `max_output_bytes` is the
    /// implementation's to enforce.
    fn execute(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: Execute,
    ) -> impl Future<Output = Result<ExecuteStream, Error>> + Send;

    /// Writes a file. An error in `content` (the caller went away, or sent too much) leaves the old file in place.
    fn write_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        file: WriteFile,
        content: ByteStream,
    ) -> impl Future<Output = Result<Written, Error>> + Send;
    /// Reads a file or a part of it.
    fn read_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        file: ReadFile,
    ) -> impl Future<Output = Result<FileBody, Error>> + Send;
    /// Removes a file or directory.
    fn remove_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        file: RemoveFile,
    ) -> impl Future<Output = Result<Deleted, Error>> + Send;
    /// What a path names, without following a symbolic link.
    fn stat_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
    ) -> impl Future<Output = Result<FileEntry, Error>> + Send;
    /// What a directory holds, by name.
    fn list_files(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
        page: PageRequest,
    ) -> impl Future<Output = Result<Page<FileEntry>, Error>> + Send;
    /// Gives a file or directory a new path.
    fn move_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: MoveFile,
    ) -> impl Future<Output = Result<Moved, Error>> + Send;
    /// Makes a directory and its missing parents.
    fn make_directory(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: MakeDirectory,
    ) -> impl Future<Output = Result<Created, Error>> + Send;
    /// A directory (or file) as a tar archive (POSIX pax form), its members relative to `path`.
    fn read_archive(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
    ) -> impl Future<Output = Result<ByteStream, Error>> + Send;
    /// Unpacks a tar archive into a directory, which is made when missing. Unpacked in the guest, by the guest: a
    /// member cannot leave the sandbox.
    fn write_archive(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
        content: ByteStream,
    ) -> impl Future<Output = Result<Written, Error>> + Send;
}
