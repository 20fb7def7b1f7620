//! What sandboxes used.

use super::call::Call;
use super::error::ClientError;
use super::pool::Client;
use crate::{OperationId, Period, SandboxUsage, UsageReport};

/// Sandboxes of one page.
const PAGE: usize = 500;

impl Client {
    /// What the account's sandboxes used, in total and each.
    pub async fn usage(&self, period: Period) -> Result<UsageReport, ClientError> {
        let mut sandboxes: Vec<SandboxUsage> = Vec::new();
        loop {
            let call = spanning(Call::new(OperationId::GetUsage), period);
            let call = call.query("limit", PAGE).query("offset", sandboxes.len());
            let mut report: UsageReport = self.fetch(call).await?;
            let came = report.sandboxes.len();
            sandboxes.append(&mut report.sandboxes);
            if came == 0 || sandboxes.len() as u64 >= report.pagination.total {
                return Ok(UsageReport { sandboxes, ..report });
            }
        }
    }

    /// What one sandbox used.
    pub async fn sandbox_usage(&self, sandbox: &str, period: Period) -> Result<SandboxUsage, ClientError> {
        self.fetch(spanning(Call::new(OperationId::GetSandboxUsage).param("id", sandbox), period)).await
    }
}

fn spanning(mut call: Call, period: Period) -> Call {
    if let Some(from) = period.from {
        call = call.query("from", from);
    }
    if let Some(to) = period.to {
        call = call.query("to", to);
    }
    call
}
