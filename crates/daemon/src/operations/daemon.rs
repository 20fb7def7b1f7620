//! One method for each operation; the work is in the modules beside this one.

use std::sync::Arc;
use std::time::Duration;

use hutch_api::{
    AuditReport, ByteStream, Caller, CreateSandbox, CreateSnapshot, Created, CreatedSandbox, Deleted, DeletedSnapshot,
    DestroyedSandbox, DoctorReport, Error, ErrorKind, Execute, ExecuteStream, FileBody, FileEntry, ForkSandbox,
    GuestPath, HostView, ImageView, MakeDirectory, MoveFile, Moved, OperationId, Operations, Page, PageRequest, Period,
    ReadFile, Readiness, RemoveFile, RootfsCatalogue, SandboxFilter, SandboxReference, SandboxUsage, SandboxView,
    ShapeView, SnapshotFilter, SnapshotReference, SnapshotView, Until, UpdateSandbox, UsageQuery, UsageReport, WhoAmI,
    WriteFile, Written,
};

use super::{archive, create, execute, files, fork, host, pause, sandboxes, snapshots, usage};
use crate::core::Core;
use crate::store::query;

/// How old the note of a key's last use may be before it is written anew.
const KEY_USE: Duration = Duration::from_secs(60);

/// The contract, implemented by this host. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Daemon(pub(crate) Arc<Core>);

impl Operations for Daemon {
    async fn authenticate(&self, key: &str) -> Result<Caller, Error> {
        let sent = key.to_owned();
        let found = self.0.store.read("look up an API key", move |db| query::find_key(db, &sent)).await;
        let row = found.map_err(|error| Error::internal(&error))?;
        let row = row.ok_or_else(|| Error::new(ErrorKind::Unauthenticated, "this API key is not known, or revoked"))?;
        let now = self.0.clock.now();
        if row.last_used_at.is_none_or(|last| last.after(KEY_USE) <= now) {
            let (store, id) = (self.0.store.clone(), row.id.clone());
            // No request waits for this note, and none fails with it.
            tokio::spawn(
                async move { store.write("note a key's use", move |db| query::touch_key(db, &id, now)).await },
            );
        }
        Ok(Caller { account: row.account, key: row.id })
    }

    fn observe(&self, _: OperationId, status: u16, elapsed: Duration) {
        self.0.metrics.answered(status, elapsed);
    }

    async fn ready(&self) -> Readiness {
        host::ready(&self.0).await
    }

    async fn metrics(&self, _: &Caller) -> Result<String, Error> {
        host::metrics(&self.0).await
    }

    async fn who_am_i(&self, caller: &Caller) -> Result<WhoAmI, Error> {
        host::who_am_i(&self.0, caller).await
    }

    async fn shapes(&self) -> Result<Vec<ShapeView>, Error> {
        Ok(hutch_units::SHAPES.iter().map(ShapeView::from).collect())
    }

    async fn rootfs(&self) -> Result<RootfsCatalogue, Error> {
        Ok(host::rootfs(&self.0))
    }

    async fn hosts(&self, _: &Caller) -> Result<Vec<HostView>, Error> {
        host::hosts(&self.0).await
    }

    async fn doctor(&self, _: &Caller) -> Result<DoctorReport, Error> {
        Ok(crate::doctor::examine(&self.0.engine, &self.0.data).await)
    }

    async fn audit(&self, _: &Caller) -> Result<AuditReport, Error> {
        host::audit(&self.0).await
    }

    async fn images(&self, _: &Caller) -> Result<Vec<ImageView>, Error> {
        host::images(&self.0).await
    }

    async fn image(&self, _: &Caller, name: &str) -> Result<ImageView, Error> {
        host::image(&self.0, name).await
    }

    async fn build_image(&self, _: &Caller, name: &str) -> Result<ImageView, Error> {
        host::build_image(&self.0, name).await
    }

    async fn create_sandbox(&self, caller: &Caller, request: CreateSandbox) -> Result<CreatedSandbox, Error> {
        create::create(&self.0, caller, request).await
    }

    async fn list_sandboxes(
        &self,
        caller: &Caller,
        filter: SandboxFilter,
        page: PageRequest,
    ) -> Result<Page<SandboxView>, Error> {
        sandboxes::list(&self.0, caller, filter, page).await
    }

    async fn sandbox_by_ip(&self, _: &Caller, ip: &str) -> Result<SandboxView, Error> {
        // No sandbox has an address yet.
        Err(Error::not_found("sandbox with the address", ip))
    }

    async fn sandbox(&self, caller: &Caller, sandbox: &SandboxReference) -> Result<SandboxView, Error> {
        sandboxes::get(&self.0, caller, sandbox).await
    }

    async fn update_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        change: UpdateSandbox,
    ) -> Result<SandboxView, Error> {
        sandboxes::update(&self.0, caller, sandbox, change).await
    }

    async fn destroy_sandbox(&self, caller: &Caller, sandbox: &SandboxReference) -> Result<DestroyedSandbox, Error> {
        sandboxes::destroy(&self.0, caller, sandbox).await
    }

    async fn pause_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        until: Until,
    ) -> Result<SandboxView, Error> {
        pause::pause(&self.0, caller, sandbox, until).await
    }

    async fn resume_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        until: Until,
    ) -> Result<SandboxView, Error> {
        pause::resume(&self.0, caller, sandbox, until).await
    }

    async fn fork_sandbox(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: ForkSandbox,
    ) -> Result<Vec<SandboxView>, Error> {
        fork::fork(&self.0, caller, sandbox, request).await
    }

    async fn create_snapshot(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: CreateSnapshot,
    ) -> Result<SnapshotView, Error> {
        snapshots::create(&self.0, caller, sandbox, request).await
    }

    async fn list_snapshots(
        &self,
        caller: &Caller,
        filter: SnapshotFilter,
        page: PageRequest,
    ) -> Result<Page<SnapshotView>, Error> {
        snapshots::list(&self.0, caller, filter, page).await
    }

    async fn snapshot(&self, caller: &Caller, snapshot: &SnapshotReference) -> Result<SnapshotView, Error> {
        snapshots::get(&self.0, caller, snapshot).await
    }

    async fn delete_snapshot(&self, caller: &Caller, snapshot: &SnapshotReference) -> Result<DeletedSnapshot, Error> {
        snapshots::delete(&self.0, caller, snapshot).await
    }

    async fn restore_snapshot(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        snapshot: &SnapshotReference,
    ) -> Result<SandboxView, Error> {
        snapshots::restore(&self.0, caller, sandbox, snapshot).await
    }

    async fn usage(&self, caller: &Caller, query: UsageQuery) -> Result<UsageReport, Error> {
        usage::account(&self.0, caller, query).await
    }

    async fn sandbox_usage(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        period: Period,
    ) -> Result<SandboxUsage, Error> {
        usage::sandbox(&self.0, caller, sandbox, period).await
    }

    async fn execute(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: Execute,
    ) -> Result<ExecuteStream, Error> {
        execute::execute(&self.0, caller, sandbox, request).await
    }

    async fn write_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        file: WriteFile,
        content: ByteStream,
    ) -> Result<Written, Error> {
        files::write(&self.0, caller, sandbox, file, content).await
    }

    async fn read_file(&self, caller: &Caller, sandbox: &SandboxReference, file: ReadFile) -> Result<FileBody, Error> {
        files::read(&self.0, caller, sandbox, file).await
    }

    async fn remove_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        file: RemoveFile,
    ) -> Result<Deleted, Error> {
        files::remove(&self.0, caller, sandbox, file).await
    }

    async fn stat_file(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
    ) -> Result<FileEntry, Error> {
        files::stat(&self.0, caller, sandbox, path).await
    }

    async fn list_files(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
        page: PageRequest,
    ) -> Result<Page<FileEntry>, Error> {
        files::list(&self.0, caller, sandbox, path, page).await
    }

    async fn move_file(&self, caller: &Caller, sandbox: &SandboxReference, request: MoveFile) -> Result<Moved, Error> {
        files::rename(&self.0, caller, sandbox, request).await
    }

    async fn make_directory(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        request: MakeDirectory,
    ) -> Result<Created, Error> {
        files::make_directory(&self.0, caller, sandbox, request).await
    }

    async fn read_archive(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
    ) -> Result<ByteStream, Error> {
        archive::read(&self.0, caller, sandbox, path).await
    }

    async fn write_archive(
        &self,
        caller: &Caller,
        sandbox: &SandboxReference,
        path: GuestPath,
        content: ByteStream,
    ) -> Result<Written, Error> {
        archive::write(&self.0, caller, sandbox, path, content).await
    }
}
