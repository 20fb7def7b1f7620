//! Moving, removing and making directories.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hutch_protocol::files::{Delete, Done, MakeDirectory, Move};
use hutch_protocol::{Code, Failure};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{failure, path};
use crate::exec::account::Account;

/// Gives something another path.
pub(crate) fn rename(request: &Move) -> Result<Done, Failure> {
    let (from, to) = (path::parse(&request.from)?, path::parse(&request.to)?);
    if to.file_name().is_none() {
        return Err(failure::of(Code::InvalidPath, &to, "is no new name"));
    }
    fs::symlink_metadata(&from).map_err(|error| failure::at(&from, "cannot be moved", &error))?;
    let mut made = path::Made::default();
    made.directories(to.parent().unwrap_or(Path::new("/")), &|_| Ok(())).inspect_err(|_| made.undo())?;
    let flags = if request.replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let result = match renameat_with(CWD, &from, CWD, &to, flags).map_err(io::Error::from) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => across(&from, &to, request.replace),
        result => {
            result.map_err(|error| failure::at(&to, &format!("{} cannot be moved there", from.display()), &error))
        }
    };
    match result {
        Ok(()) => {
            made.keep();
            Ok(Done {})
        }
        Err(failure) => {
            made.undo();
            Err(failure)
        }
    }
}

/// Between file systems a file is copied beside its new path, put in place and then removed.
fn across(from: &Path, to: &Path, replace: bool) -> Result<(), Failure> {
    let metadata = fs::symlink_metadata(from).map_err(|error| failure::at(from, "cannot be moved", &error))?;
    if !metadata.is_file() {
        let what = "lies on another file system than the new path: only files are moved between them";
        return Err(failure::of(Code::Other, from, what));
    }
    if !replace && fs::symlink_metadata(to).is_ok() {
        return Err(failure::of(Code::Exists, to, "exists already"));
    }
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let temporary = to.with_file_name(name);
    let copied =
        fs::copy(from, &temporary).and_then(|_| fs::rename(&temporary, to)).and_then(|()| fs::remove_file(from));
    copied.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        failure::at(to, &format!("{} cannot be moved there", from.display()), &error)
    })
}

/// Removes something.
pub(crate) fn delete(request: &Delete) -> Result<Done, Failure> {
    let path = path::parse(&request.path)?;
    if path.file_name().is_none() {
        return Err(failure::of(Code::InvalidPath, &path, "cannot be removed"));
    }
    let failed = |error: io::Error| failure::at(&path, "cannot be removed", &error);
    let metadata = fs::symlink_metadata(&path).map_err(failed)?;
    let result = if !metadata.is_dir() {
        fs::remove_file(&path)
    } else if request.recursive {
        fs::remove_dir_all(&path)
    } else {
        fs::remove_dir(&path)
    };
    result.map(|()| Done {}).map_err(failed)
}

/// Makes a directory and its parents.
pub(crate) fn make_directory(request: &MakeDirectory) -> Result<Done, Failure> {
    let path = path::parse(&request.path)?;
    if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
        return Err(failure::of(Code::Exists, &path, "exists and is not a directory"));
    }
    let account = request.user.as_deref().map(Account::find).transpose()?;
    let finish = |directory: &Path| {
        if let Some(account) = &account {
            std::os::unix::fs::chown(directory, Some(account.uid), Some(account.gid))?;
        }
        match request.mode {
            Some(mode) => fs::set_permissions(directory, fs::Permissions::from_mode(mode & 0o7777)),
            None => Ok(()),
        }
    };
    let mut made = path::Made::default();
    made.directories(&path, &finish).inspect_err(|_| made.undo())?;
    made.keep();
    Ok(Done {})
}
