//! Failures with a hint where the cause is known to have a fix.

use std::error::Error;
use std::fmt::Display;
use std::io;

use hutch_jail::report::{Failure, Step};

/// A failure of this step.
pub(crate) fn failed(step: Step, subject: impl Display, cause: &(dyn Error + 'static)) -> Failure {
    let mut text = cause.to_string();
    let mut innermost = cause;
    while let Some(next) = innermost.source() {
        innermost = next;
        text = format!("{text}: {innermost}");
    }
    let errno = innermost.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    let errno = errno.or_else(|| innermost.downcast_ref::<rustix::io::Errno>().map(|errno| errno.raw_os_error()));
    Failure { step, subject: subject.to_string(), cause: text, hint: hint(step, errno).map(str::to_owned) }
}

fn hint(step: Step, errno: Option<i32>) -> Option<&'static str> {
    match (step, errno?) {
        (Step::Specification, _) => None,
        (Step::Descriptor, libc::EACCES | libc::EPERM) => Some("the service must run as root"),
        (Step::Cgroup, libc::EROFS | libc::EACCES | libc::EPERM) => {
            Some("cgroups must be writable: run the service as root, in a container with a writable /sys/fs/cgroup")
        }
        (Step::Namespaces, libc::ENOSPC) => Some("raise the sysctls user.max_*_namespaces"),
        (Step::Namespaces | Step::Root | Step::Identity | Step::Capabilities, libc::EPERM) => {
            Some("the service must run as root with CAP_SYS_ADMIN; a container needs to be a privileged one")
        }
        (Step::Namespaces, libc::EINVAL) => {
            Some("the host kernel lacks a kind of namespace: CONFIG_USER_NS and others")
        }
        (Step::Filter, libc::EINVAL | libc::ENOSYS) => Some("the host kernel lacks CONFIG_SECCOMP_FILTER"),
        (Step::Execute, libc::ENOENT | libc::ENOEXEC) => {
            Some("the guest kernel must be a static x86-64 program: build it with `cargo xtask guest`")
        }
        (Step::Execute, libc::EACCES) => Some("the guest kernel's file must be executable by everyone"),
        _ => None,
    }
}
