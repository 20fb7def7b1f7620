//! Pause, resume, copies and snapshots of sandboxes.

use super::call::Call;
use super::error::ClientError;
use super::pool::Client;
use crate::{
    CreateSnapshot, DeletedSnapshot, ForkSandbox, ForkedSandboxes, OperationId, RestoreSnapshot, SandboxView,
    SnapshotFilter, SnapshotView, Until,
};

impl Client {
    /// Pauses a sandbox.
    pub async fn pause_sandbox(&self, sandbox: &str, until: Until) -> Result<SandboxView, ClientError> {
        self.fetch(waiting(OperationId::PauseSandbox, sandbox, until)).await
    }

    /// Resumes a sandbox.
    pub async fn resume_sandbox(&self, sandbox: &str, until: Until) -> Result<SandboxView, ClientError> {
        self.fetch(waiting(OperationId::ResumeSandbox, sandbox, until)).await
    }

    /// Copies a sandbox: the copies.
    pub async fn fork_sandbox(&self, sandbox: &str, request: &ForkSandbox) -> Result<Vec<SandboxView>, ClientError> {
        let call = Call::new(OperationId::ForkSandbox).param("id", sandbox).json(request);
        if request.count.is_none() {
            return Ok(vec![self.fetch(call).await?]);
        }
        let answer: ForkedSandboxes = self.fetch(call).await?;
        Ok(answer.sandboxes)
    }

    /// Takes a snapshot of a sandbox.
    pub async fn create_snapshot(&self, sandbox: &str, request: &CreateSnapshot) -> Result<SnapshotView, ClientError> {
        self.fetch(Call::new(OperationId::CreateSnapshot).param("id", sandbox).json(request)).await
    }

    /// Every snapshot of the account that the filter lets through, newest first.
    pub async fn list_snapshots(&self, filter: &SnapshotFilter) -> Result<Vec<SnapshotView>, ClientError> {
        self.every_page(|| {
            let mut call = Call::new(OperationId::ListSnapshots);
            if let Some(sandbox) = &filter.sandbox {
                call = call.query("sandbox", sandbox);
            }
            if let Some(name) = &filter.name {
                call = call.query("name", name);
            }
            call
        })
        .await
    }

    /// One snapshot, by id or name.
    pub async fn snapshot(&self, snapshot: &str) -> Result<SnapshotView, ClientError> {
        self.fetch(Call::new(OperationId::GetSnapshot).param("id", snapshot)).await
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, snapshot: &str) -> Result<DeletedSnapshot, ClientError> {
        self.fetch(Call::new(OperationId::DeleteSnapshot).param("id", snapshot)).await
    }

    /// Puts a sandbox back to a snapshot.
    pub async fn restore_snapshot(&self, sandbox: &str, snapshot: &str) -> Result<SandboxView, ClientError> {
        let request = RestoreSnapshot { snapshot: snapshot.to_owned() };
        self.fetch(Call::new(OperationId::RestoreSnapshot).param("id", sandbox).json(&request)).await
    }
}

fn waiting(id: OperationId, sandbox: &str, until: Until) -> Call {
    let call = Call::new(id).param("id", sandbox);
    if until == Until::Settled { call.query("wait", true) } else { call }
}
