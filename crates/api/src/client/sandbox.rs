//! Sandboxes.

use super::call::Call;
use super::error::ClientError;
use super::pool::Client;
use crate::{CreateSandbox, CreatedSandbox, DestroyedSandbox, OperationId, SandboxFilter, SandboxView, UpdateSandbox};

impl Client {
    /// Creates a sandbox. Give an idempotency key to be able to repeat the call when its answer is lost.
    pub async fn create_sandbox(&self, request: &CreateSandbox) -> Result<CreatedSandbox, ClientError> {
        self.fetch(Call::new(OperationId::CreateSandbox).json(request)).await
    }

    /// Every sandbox of the account that the filter lets through, newest first.
    pub async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxView>, ClientError> {
        self.every_page(|| {
            let mut call = Call::new(OperationId::ListSandboxes);
            if let Some(status) = filter.status {
                call = call.query("status", status.as_str());
            }
            if let Some(name) = &filter.name {
                call = call.query("name", name);
            }
            filter.labels.iter().fold(call, |call, (key, value)| call.query("label", format!("{key}={value}")))
        })
        .await
    }

    /// One sandbox, by id or name.
    pub async fn sandbox(&self, sandbox: &str) -> Result<SandboxView, ClientError> {
        self.fetch(Call::new(OperationId::GetSandbox).param("id", sandbox)).await
    }

    /// The sandbox that has this address.
    pub async fn sandbox_by_ip(&self, ip: &str) -> Result<SandboxView, ClientError> {
        self.fetch(Call::new(OperationId::GetSandboxByIp).param("ip", ip)).await
    }

    /// Changes a sandbox.
    pub async fn update_sandbox(&self, sandbox: &str, change: &UpdateSandbox) -> Result<SandboxView, ClientError> {
        self.fetch(Call::new(OperationId::UpdateSandbox).param("id", sandbox).json(change)).await
    }

    /// Destroys a sandbox. Repeating it is no error.
    pub async fn destroy_sandbox(&self, sandbox: &str) -> Result<DestroyedSandbox, ClientError> {
        self.fetch(Call::new(OperationId::DestroySandbox).param("id", sandbox)).await
    }
}
