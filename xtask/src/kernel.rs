//! `cargo xtask kernel`: builds the user-mode guest kernel.
//!
//! ```text
//! source.json ──> Debian's kernel source (cache, archive or --source)
//!                          │
//!   patches/*.patch ───────┤            usermode.config, compiler, C library
//!                          │                        │
//!                          └──> key (SHA-256) <─────┘
//!                                   │
//!            <cache>/kernel/<key>/linux-um there? ── yes ──> done
//!                                   │ no
//!          unpack, patch, configure, check the configuration, compile, strip, rename into place
//! ```
//!
//! What is built depends on what the key is made of and on nothing else: not on the time, the user, the machine's
//! name or the directory.

mod archive;
mod compile;
mod config;
mod key;
mod source;
mod tools;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use source::Source;

/// Where the cache lies unless `HUTCH_CACHE` names another place.
const DEFAULT_CACHE: &str = "/var/cache/hutch";

/// The name of the finished kernel.
const KERNEL: &str = "linux-um";

/// What to build the kernel from and with.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A Debian package of the kernel's source, a path or an address, instead of the pinned one.
    #[arg(long, requires = "sha256", value_name = "PATH-or-URL")]
    source: Option<String>,
    /// The SHA-256 of the source package.
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// How many compilers run at once; the number of processors unless given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Build even if the same kernel is in the cache, and say whether it came out the same.
    #[arg(long)]
    again: bool,
}

/// Builds the kernel and prints where it is.
pub(crate) fn run(options: &Options) -> Result<()> {
    println!("{}", build(options)?.display());
    Ok(())
}

/// Builds the kernel unless the cache has it; the path of the program in the cache.
pub(crate) fn build(options: &Options) -> Result<PathBuf> {
    tools::check()?;
    let recipe = recipe_directory();
    let cache = cache_directory().join("kernel");
    fs::create_dir_all(&cache).with_context(|| format!("cannot make the cache directory {}", cache.display()))?;

    let pinned = source::Pin::read(&recipe.join("source.json"))?;
    let wanted = Source::wanted(options.source.as_deref(), options.sha256.as_deref(), &pinned)?;
    let package = source::obtain(&wanted, &cache)?;
    let patches = read_patches(&recipe.join("patches"))?;
    let config_path = recipe.join("usermode.config");
    let config = read(&config_path)?;
    let key = key::Ingredients {
        source_sha256: &package.sha256,
        patches: &patches,
        config: &config,
        toolchain: &tools::toolchain()?,
        recipe: &compile::recipe(),
    }
    .key();

    let directory = cache.join(&key);
    let kernel = directory.join(KERNEL);
    if kernel.exists() && !options.again {
        eprintln!("kernel: {} is up to date", kernel.display());
        return Ok(kernel);
    }

    sweep(&cache)?;
    let _lock = lock(&cache, &key)?;
    if kernel.exists() && !options.again {
        eprintln!("kernel: another build has just made {}", kernel.display());
        return Ok(kernel);
    }

    let started = Instant::now();
    let work = cache.join(format!("{key}.work"));
    let job = compile::Job {
        package: &package.path,
        patches: &patches,
        fragment: &config_path,
        work: &work,
        jobs: options.jobs.unwrap_or_else(processors),
        steps: pinned.steps,
    };
    let built = job.run()?;
    let before = kernel.exists().then(|| key::file_sha256(&kernel)).transpose()?;
    let now = key::file_sha256(&built)?;
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    fs::rename(&built, &kernel).with_context(|| format!("cannot move the kernel to {}", kernel.display()))?;
    fs::rename(job.log(), directory.join("build.log")).context("cannot keep the build's log")?;
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    match before {
        Some(before) if before == now => eprintln!("kernel: the same bytes as before, SHA-256 {now}"),
        Some(before) => anyhow::bail!("the build is not reproducible: SHA-256 {before} before, {now} now"),
        None => eprintln!("kernel: built in {} s, SHA-256 {now}", started.elapsed().as_secs()),
    }
    Ok(kernel)
}

/// A patch: its file's name and text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Patch {
    name: String,
    text: Vec<u8>,
}

/// The patches in the order in which they apply, which is that of their names.
fn read_patches(directory: &Path) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", directory.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            let name = path.file_name().expect("a listed file has a name").to_string_lossy().into_owned();
            patches.push(Patch { name, text: read(&path)? });
        }
    }
    patches.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(patches)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Where the patches and the configuration lie in this tree.
fn recipe_directory() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the workspace");
    workspace.join("guest/kernel")
}

fn cache_directory() -> PathBuf {
    let named = std::env::var_os("HUTCH_CACHE").filter(|path| !path.is_empty());
    named.map_or_else(|| PathBuf::from(DEFAULT_CACHE), PathBuf::from)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Removes what killed builds left: work directories whose lock nobody has.
fn sweep(cache: &Path) -> Result<()> {
    for entry in fs::read_dir(cache).with_context(|| format!("cannot list {}", cache.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", cache.display()))?.path();
        if path.extension().is_none_or(|extension| extension != "work") {
            continue;
        }
        let lock = path.with_extension("lock");
        let file = File::create(&lock).with_context(|| format!("cannot open the lock {}", lock.display()))?;
        if file.try_lock().is_ok() {
            eprintln!("kernel: removing {}, which a killed build left", path.display());
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// The right to build the kernel of this key; waits for a build that has it. Free again when dropped.
fn lock(cache: &Path, key: &str) -> Result<File> {
    let path = cache.join(format!("{key}.lock"));
    let file = File::create(&path).with_context(|| format!("cannot make the lock {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("kernel: waiting for another build of the same kernel");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_builds_is_swept() {
        let cache = std::env::temp_dir().join(format!("hutch-kernel-sweep-{}", std::process::id()));
        for directory in ["dead.work/tree", "alive.work", "done"] {
            fs::create_dir_all(cache.join(directory)).expect("a directory");
        }
        let held = lock(&cache, "alive").expect("a lock");
        sweep(&cache).expect("the cache can be swept");
        assert!(!cache.join("dead.work").exists());
        assert!(cache.join("alive.work").exists());
        assert!(cache.join("done").exists());
        drop(held);
        sweep(&cache).expect("the cache can be swept");
        assert!(!cache.join("alive.work").exists());
        fs::remove_dir_all(&cache).expect("the test's own directory");
    }
}
