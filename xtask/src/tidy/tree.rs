//! The files of the project: what is tracked, and what would be if it were added now.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Paths relative to the root, and their text. Files that are not UTF-8 stand without text.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads every file that git tracks or would track.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            .current_dir(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("start git")?;
        if !output.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&output.stdout).split('\0').filter(|path| !path.is_empty()) {
            // A file that was deleted but not yet committed is still listed.
            let Ok(content) = std::fs::read(root.join(path)) else { continue };
            files.insert(path.to_owned(), String::from_utf8(content).ok());
        }
        Ok(Self { files })
    }

    /// A tree for a test.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect() }
    }

    /// Whether a file or a folder of this name is in the tree.
    pub(super) fn contains(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path) || path.is_empty() || self.paths().any(|file| file.starts_with(&folder))
    }

    /// Every path.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Every text file.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Every Rust source file.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| Path::new(path).extension().is_some_and(|extension| extension == "rs"))
    }
}

/// The folder of the workspace: the parent of this crate's.
pub(super) fn root() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(own.parent().context("xtask lies in the workspace's folder")?.to_owned())
}
