//! From the kernel's errors to failures that a caller can decide on.

use std::io;
use std::path::Path;

use hutch_protocol::{Code, Failure};

/// A failure at this path: `what` was tried.
pub(crate) fn at(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure { code: code(error), message: format!("{}: {what}: {error}", path.display()), errno: error.raw_os_error() }
}

/// A failure at this path that the kernel did not see.
pub(crate) fn of(code: Code, path: &Path, what: &str) -> Failure {
    Failure::new(code, format!("{}: {what}", path.display()))
}

fn code(error: &io::Error) -> Code {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Code::NotFound,
        Some(libc::ENOTDIR) => Code::NotADirectory,
        Some(libc::EISDIR) => Code::IsADirectory,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => Code::Permission,
        Some(libc::EEXIST) => Code::Exists,
        Some(libc::ENOTEMPTY) => Code::NotEmpty,
        Some(libc::ENOSPC | libc::EDQUOT) => Code::NoSpace,
        Some(libc::EFBIG) => Code::TooLarge,
        Some(libc::ENAMETOOLONG | libc::ELOOP | libc::EINVAL) => Code::InvalidPath,
        Some(libc::EBUSY | libc::ETXTBSY) => Code::Busy,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => Code::Exhausted,
        _ => Code::Other,
    }
}
