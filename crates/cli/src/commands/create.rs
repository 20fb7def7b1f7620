//! `hutch create`.

use clap::Args;
use hutch_api::{CreateSandbox, CreatedSandbox, Isolation, SandboxView};
use ulid::Ulid;

use crate::context::Context;
use crate::execution::variables;
use crate::failure::Failure;
use crate::idle::Limits;
use crate::image_build;
use crate::output;
use crate::pair::{self, Assignment};

/// What is taken when a sandbox begins neither as an image that was named nor as a snapshot.
const DEFAULT_IMAGE: &str = "debian:13";
const DEFAULT_SHAPE: &str = "s-1vcpu-1gb";

const AFTER_HELP: &str = "\
Examples:
  hutch create                                  the defaults, under a made-up name
  hutch create --name box --shape s-2vcpu-4gb   a larger one, called box
  hutch create --image devbox:1                 with Node, Bun, Go, Rust and compilers
  hutch create --snapshot clean                 as a snapshot is: memory, processes and disk
  hutch create --auto-pause 10m                 pauses when it was idle for ten minutes
  id=$(hutch create -q)                         in a script: the id is all that is printed

The image is built when it is first used, which takes some minutes once.";

/// Create a sandbox that stays until it is destroyed
///
/// Prints its id. The sandbox runs when this returns.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Create {
    /// Its name: up to 63 of a-z, 0-9 and hyphens; made up without it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    sandbox: SandboxOptions,
    /// Set an environment variable of all its commands; may be given several times
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair::assignment)]
    env: Vec<Assignment>,
    #[command(flatten)]
    limits: Limits,
    /// A text of yours: repeated with the same text, the command answers with the same sandbox
    #[arg(long, value_name = "TEXT")]
    idempotency_key: Option<String>,
}

/// What a new sandbox is like; `create` and `run` share it.
#[derive(Debug, Clone, Args)]
pub(crate) struct SandboxOptions {
    /// The image: its root file system; debian:13 without it
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// The shape: its processors and memory; s-1vcpu-1gb without it
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: Option<String>,
    /// Begin as this snapshot, by name or id: with its memory, processes, disk, image and shape
    #[arg(long, value_name = "SNAPSHOT", visible_alias = "snapshot", conflicts_with_all = ["image", "shape", "disk"])]
    pub(crate) from_snapshot: Option<String>,
    /// The engine that runs its kernel; auto takes the strongest that this machine can run
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    pub(crate) engine: String,
    /// Size of its disk in MiB; the shape's own without it
    #[arg(long, value_name = "MIB")]
    pub(crate) disk: Option<u32>,
    /// A mark to find it by; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair::assignment)]
    pub(crate) label: Vec<Assignment>,
}

impl SandboxOptions {
    /// The request, with a fresh idempotency key.
    pub(crate) fn request(&self) -> CreateSandbox {
        let fresh = self.from_snapshot.is_none();
        let or = |given: &Option<String>, default: &str| given.clone().or_else(|| fresh.then(|| default.to_owned()));
        CreateSandbox {
            shape: or(&self.shape, DEFAULT_SHAPE).unwrap_or_default(),
            rootfs: or(&self.image, DEFAULT_IMAGE),
            snapshot: self.from_snapshot.clone(),
            engine: Some(self.engine.clone()),
            disk_mib: self.disk,
            labels: variables(&self.label),
            idempotency_key: Some(Ulid::new().to_string()),
            ..CreateSandbox::default()
        }
    }
}

impl Create {
    pub(crate) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let service = context.service()?;
        let mut request = self.sandbox.request();
        request.name = self.name;
        request.envs = variables(&self.env);
        request.idempotency_key = self.idempotency_key.or(request.idempotency_key);
        request.lifetime_seconds = self.limits.lifetime()?;
        request.auto_pause_after_seconds = self.limits.auto_pause();
        request.auto_destroy_after_seconds = self.limits.auto_destroy();
        let created = image_build::create(context, &service, &request).await?;
        context.tell(&sentence(&created));
        if context.json() {
            output::print_json(&created)?;
        } else {
            output::print(&format!("{}\n", created.sandbox.id))?;
        }
        Ok(0)
    }
}

/// What was created, and what it is not.
pub(crate) fn sentence(created: &CreatedSandbox) -> String {
    let sandbox = &created.sandbox;
    let time = sandbox.spawn_ms.map(|time| format!(" in {time:.0} ms")).unwrap_or_default();
    let verb = if created.replayed == Some(true) { "there already" } else { "created" };
    let mut text = format!("{verb}: {}{time}, {}", title(sandbox), traits(sandbox));
    if sandbox.network.as_deref() == Some("loopback") {
        text.push_str(", no network but its own loopback");
    }
    text
}

/// Name and id.
pub(crate) fn title(sandbox: &SandboxView) -> String {
    let name = sandbox.name.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    format!("{name}({})", sandbox.id)
}

/// Image, shape and isolation.
fn traits(sandbox: &SandboxView) -> String {
    let image = sandbox.rootfs.as_deref().unwrap_or("an unknown image");
    let shape = sandbox.shape.as_deref().unwrap_or("an unknown shape");
    format!("{image}, {shape}, isolation {}", isolation(sandbox))
}

/// The word for what separates it from the host.
pub(crate) fn isolation(sandbox: &SandboxView) -> &'static str {
    match sandbox.isolation {
        Some(Isolation::Vm) => "vm",
        Some(Isolation::UserKernel) => "user-kernel",
        Some(Isolation::Isolate) => "isolate",
        None => "unknown",
    }
}
