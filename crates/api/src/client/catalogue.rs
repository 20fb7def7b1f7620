//! The service itself and its images.

use super::call::Call;
use super::error::ClientError;
use super::pool::Client;
use crate::{
    AuditReport, DoctorReport, Health, HostView, ImageView, OperationId, Page, PageRequest, Readiness, RootfsCatalogue,
    ShapeView, WhoAmI,
};

impl Client {
    /// Whether the service lives.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.fetch(Call::new(OperationId::Health)).await
    }

    /// Whether sandboxes can be created.
    pub async fn ready(&self) -> Result<Readiness, ClientError> {
        self.fetch(Call::new(OperationId::Ready)).await
    }

    /// Metrics in the text form of Prometheus.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let bytes = self.fetch_bytes(Call::new(OperationId::Metrics)).await?;
        String::from_utf8(bytes.into()).map_err(|_| self.odd("its metrics are not UTF-8"))
    }

    /// Who the key belongs to.
    pub async fn who_am_i(&self) -> Result<WhoAmI, ClientError> {
        self.fetch(Call::new(OperationId::WhoAmI)).await
    }

    /// Every shape.
    pub async fn shapes(&self) -> Result<Vec<ShapeView>, ClientError> {
        self.whole_list(OperationId::ListShapes).await
    }

    /// Every root file system.
    pub async fn rootfs(&self) -> Result<RootfsCatalogue, ClientError> {
        self.fetch(Call::new(OperationId::ListRootfs)).await
    }

    /// Every machine.
    pub async fn hosts(&self) -> Result<Vec<HostView>, ClientError> {
        self.whole_list(OperationId::ListHosts).await
    }

    /// The prerequisites of the service's machine.
    pub async fn doctor(&self) -> Result<DoctorReport, ClientError> {
        self.fetch(Call::new(OperationId::Doctor)).await
    }

    /// Every artefact on the service's machine.
    pub async fn audit(&self) -> Result<AuditReport, ClientError> {
        self.fetch(Call::new(OperationId::Audit)).await
    }

    /// Every image and how far it is.
    pub async fn images(&self) -> Result<Vec<ImageView>, ClientError> {
        self.whole_list(OperationId::ListImages).await
    }

    /// One image.
    pub async fn image(&self, name: &str) -> Result<ImageView, ClientError> {
        self.fetch(Call::new(OperationId::GetImage).param("name", name)).await
    }

    /// Begins to build an image unless it is ready.
    pub async fn build_image(&self, name: &str) -> Result<ImageView, ClientError> {
        self.fetch(Call::new(OperationId::BuildImage).param("name", name)).await
    }

    async fn whole_list<T: serde::de::DeserializeOwned>(&self, id: OperationId) -> Result<Vec<T>, ClientError> {
        self.every_page(|| Call::new(id)).await
    }

    /// Every item of a list, page by page.
    pub(super) async fn every_page<T: serde::de::DeserializeOwned>(
        &self,
        call: impl Fn() -> Call,
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        loop {
            let call = call().query("limit", PageRequest::MAX_LIMIT).query("offset", items.len());
            let page: Page<T> = self.fetch(call).await?;
            let came = page.data.len();
            items.extend(page.data);
            // A page without items ends the list too: it may have become shorter meanwhile.
            if came == 0 || items.len() as u64 >= page.pagination.total {
                return Ok(items);
            }
        }
    }
}
