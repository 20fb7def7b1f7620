//! Waiting for an image, with its progress shown.

use std::time::Duration;

use hutch_api::client::ClientError;
use hutch_api::{BuildProgress, CreateSandbox, CreatedSandbox, ErrorKind, ImageStatus, ImageView};

use crate::context::{Context, Remote};
use crate::failure::Failure;
use crate::progress::Progress;

/// How often a build is asked about.
const EVERY: Duration = Duration::from_millis(500);
/// How often a create whose answer was lost is repeated; its idempotency key makes that safe.
const ATTEMPTS: u32 = 3;

/// Creates a sandbox. An image that is not there yet is waited for.
pub(crate) async fn create(
    context: &Context,
    service: &Remote,
    request: &CreateSandbox,
) -> Result<CreatedSandbox, Failure> {
    let mut lost = 0;
    loop {
        let spinner = Progress::spinner(context, "creating a sandbox");
        let result = service.client().create_sandbox(request).await;
        drop(spinner);
        match result {
            Err(error) if error.kind() == Some(ErrorKind::ImageBuilding) => {
                let image = request.rootfs.as_deref().unwrap_or_default();
                context.tell(&format!("the image {image} is built first; this happens once"));
                wait(context, service, image).await?;
            }
            Err(ClientError::Broken { .. }) if lost + 1 < ATTEMPTS => lost += 1,
            other => return other.map_err(|error| service.explain(&error)),
        }
    }
}

/// Waits until an image is ready.
pub(crate) async fn wait(context: &Context, service: &Remote, name: &str) -> Result<ImageView, Failure> {
    let mut progress = Progress::percent(context, &format!("building {name}"));
    loop {
        let image = service.client().image(name).await.map_err(|error| service.explain(&error))?;
        match image.status {
            ImageStatus::Ready => return Ok(image),
            ImageStatus::Failed | ImageStatus::Absent => {
                let why = image.error.unwrap_or_else(|| "the build ended without a result".to_owned());
                return Err(Failure::new(format!("the image {name} could not be built: {why}"))
                    .with_hint("`hutch doctor` names what a build needs"));
            }
            ImageStatus::Building => {
                if let Some(BuildProgress { step, percent, detail, .. }) = &image.progress {
                    progress.at(*percent, step, detail.as_deref());
                }
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
