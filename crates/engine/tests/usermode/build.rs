//! The user-mode engine of this build, for tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use hutch_engine::Engine;
use hutch_engine::usermode::{Options, UserMode};

/// Cargo's target directory, and whether this is a release build.
pub(crate) fn target() -> (PathBuf, bool) {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    (profile.parent().unwrap().to_owned(), profile.ends_with("release"))
}

/// The launcher of this build: made once, where the tests' own programs are.
pub(crate) fn launcher() -> PathBuf {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let (target, release) = target();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "hutch-jail", "--target-dir"]).arg(&target);
        if release {
            cargo.arg("--release");
        }
        assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success(), "the launcher is not built");
        target.join(if release { "release" } else { "debug" }).join("hutch-jail")
    };
    LAUNCHER.get_or_init(build).clone()
}

/// The guest directory: that of HUTCH_GUEST, else of this tree.
pub(crate) fn guest() -> PathBuf {
    let named = std::env::var_os("HUTCH_GUEST").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest"))
}

pub(crate) fn options(sandboxes: &Path) -> Options {
    Options { guest: Some(guest()), launcher: Some(launcher()), ..Options::new(sandboxes) }
}

pub(crate) fn make(sandboxes: &Path) -> Arc<dyn Engine> {
    Arc::new(UserMode::new(options(sandboxes)))
}
