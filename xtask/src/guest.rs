//! `cargo xtask guest`: builds what every sandbox starts from, into `target/guest`.
//!
//! ```text
//! kernel (cargo xtask kernel) ───────────────────────▶ linux-um  ┐
//! crates/agent ──▶ static program ──▶ boot image ────▶ boot.erofs ├─▶ target/guest, all at once
//! digests and release ───────────────────────────────▶ guest.json ┘
//! ```
//!
//! Kernel and agent are kept by their own caches, and the same agent gives the same boot image byte for byte, so a
//! second run finds nothing to do.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use hutch_engine::guest::{GuestFiles, GuestManifest, digest_of_file};

use crate::kernel;

/// What a static program is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What to build the guest with.
#[derive(Debug, Args)]
#[group(id = "guest")]
pub(crate) struct Options {
    /// Take this kernel instead of building one.
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    #[command(flatten)]
    build: kernel::Options,
}

/// Builds what is out of date and prints the directory.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = workspace().join("target");
    let kernel = match &options.kernel {
        Some(kernel) => kernel.clone(),
        None => kernel::build(&options.build)?,
    };
    let agent = build_agent(&target.join("agent"))?;
    let directory = target.join("guest");
    let staging = target.join(format!("guest.{}.staging", std::process::id()));
    let published = stage(&kernel, &agent, &staging).and_then(|manifest| publish(&manifest, &staging, &directory));
    if staging.exists() {
        fs::remove_dir_all(&staging).with_context(|| format!("cannot remove {}", staging.display()))?;
    }
    published?;
    println!("{}", directory.display());
    Ok(())
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the workspace")
}

/// Builds the agent as a static program, in a target directory of its own: other flags than those of the host's
/// programs would make cargo build everything again and again.
fn build_agent(target: &Path) -> Result<PathBuf> {
    eprintln!("guest: building the agent");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace())
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "hutch-agent",
            "--bin",
            "hutch-agent",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(target)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", agent_flags());
    let status = cargo.status().context("cargo cannot be run")?;
    if !status.success() {
        bail!("the agent was not built ({status})");
    }
    Ok(target.join(TARGET).join("release/hutch-agent"))
}

/// Static, since the boot image has no libraries; with system calls through the C library, since rustix's own way
/// relies on more symbols of the vDSO than that of every guest kernel has; and without this directory's name, so that
/// every checkout gives the same program.
fn agent_flags() -> OsString {
    let mut flags = OsString::from("-C target-feature=+crt-static --cfg=rustix_use_libc --remap-path-prefix=");
    flags.push(workspace());
    flags.push("=.");
    flags
}

/// Puts all files together in a directory that nobody looks into yet.
fn stage(kernel: &Path, agent: &Path, staging: &Path) -> Result<GuestManifest> {
    fs::create_dir_all(staging).with_context(|| format!("cannot make {}", staging.display()))?;
    let (staged_kernel, boot_image) = (staging.join(GuestFiles::KERNEL), staging.join(GuestFiles::BOOT_IMAGE));
    fs::copy(kernel, &staged_kernel).with_context(|| format!("cannot copy {}", kernel.display()))?;
    // It is executed by the unprivileged users that guests run as.
    set_mode(&staged_kernel, 0o755)?;
    hutch_image::boot::build(agent, &boot_image).context("the boot image was not built")?;
    let digest = |path: &Path| digest_of_file(path).with_context(|| format!("cannot read {}", path.display()));
    let manifest = GuestManifest {
        format: GuestManifest::FORMAT.to_owned(),
        version: GuestManifest::VERSION,
        kernel_release: release(&staged_kernel)?,
        kernel_digest: digest(&staged_kernel)?,
        boot_image_digest: digest(&boot_image)?,
    };
    let path = staging.join(GuestFiles::MANIFEST);
    let text = serde_json::to_string_pretty(&manifest).context("the manifest cannot be written as JSON")?;
    fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    Ok(manifest)
}

/// What the kernel says of itself, which also shows that it runs here.
fn release(kernel: &Path) -> Result<String> {
    let output = Command::new(kernel).arg("--version").env("TERM", "linux").output();
    let output = output.with_context(|| format!("cannot run {}", kernel.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || text.is_empty() {
        bail!("{} does not print its version ({})", kernel.display(), output.status);
    }
    Ok(text)
}

/// Moves the staged directory into place, unless what is there is the same.
fn publish(manifest: &GuestManifest, staging: &Path, directory: &Path) -> Result<()> {
    if GuestFiles::open(directory).is_ok_and(|present| present.manifest == *manifest) {
        eprintln!("guest: {} is up to date", directory.display());
        return Ok(());
    }
    set_mode(staging, 0o755)?;
    let old = staging.with_extension("old");
    if directory.exists() {
        fs::rename(directory, &old).with_context(|| format!("cannot move {} away", directory.display()))?;
    }
    fs::rename(staging, directory).with_context(|| format!("cannot move the guest to {}", directory.display()))?;
    if old.exists() {
        fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    eprintln!("guest: Linux {} in {}", manifest.kernel_release, directory.display());
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}
