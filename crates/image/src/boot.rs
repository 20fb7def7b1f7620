//! The boot image: the small read-only disk that a guest's kernel takes for its root, with the agent as its init and
//! the directories that the agent mounts things on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::erofs::{self, Labels, Owners, Times};
use crate::file::{self, At, FileError};
use crate::program::ProgramError;
use crate::progress::Cancel;

/// The directories beside `/init`: the base image, the sandbox's disk, the new root, and the usual ones.
pub const DIRECTORIES: [&str; 8] = ["base", "disk", "root", "proc", "sys", "dev", "tmp", "run"];

/// The time of every file, 2026-01-01: the image depends on the agent alone.
const TIME: u64 = 1_767_225_600;

const UUID: &str = "68757463-6800-4000-8000-626f6f740000";

/// Why there is no boot image.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The agent is not a regular file.
    #[error("the agent {} is not a program file", path.display())]
    Agent {
        /// Its path.
        path: PathBuf,
    },
    /// The image could not be packed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Packs the agent into a boot image at `image`, which it replaces. The same agent gives the same bytes. Takes some
/// tens of milliseconds; everything in the image belongs to root, whoever packs it.
pub fn build(agent: &Path, image: &Path) -> Result<(), BootError> {
    let not_a_program = || BootError::Agent { path: agent.to_owned() };
    let metadata = agent.metadata().at("look at", agent)?;
    if !metadata.is_file() {
        return Err(not_a_program());
    }
    // Beside the image, so that it can be renamed into place.
    let mut staging = image.as_os_str().to_owned();
    staging.push(format!(".{}.staging", std::process::id()));
    let staging = PathBuf::from(staging);
    let result = pack(agent, image, &staging);
    let removed = fs::remove_dir_all(&staging).at("remove", &staging);
    result.and(removed.map_err(BootError::from))
}

fn pack(agent: &Path, image: &Path, staging: &Path) -> Result<(), BootError> {
    let tree = staging.join("tree");
    for directory in DIRECTORIES {
        file::create_directory(&tree.join(directory))?;
        set_mode(&tree.join(directory), 0o755)?;
    }
    set_mode(&tree, 0o755)?;
    let init = tree.join("init");
    fs::copy(agent, &init).at("copy", agent)?;
    set_mode(&init, 0o755)?;
    let packed = staging.join("image");
    let labels = Labels { uuid: UUID, times: Times::Fixed(TIME), owners: Owners::Root };
    erofs::pack([&tree, &packed], labels, &Cancel::default())?;
    set_mode(&packed, 0o444)?;
    Ok(file::publish(&packed, image)?)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).at("set the mode of", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_no_file_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let image = directory.path().join("boot.erofs");
        assert!(matches!(build(directory.path(), &image), Err(BootError::Agent { .. })));
        assert!(build(&directory.path().join("agent"), &image).is_err());
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }
}
