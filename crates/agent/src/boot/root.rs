//! The guest's root: the shared base below, the sandbox's own disk above, and the kernel's file systems.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount_move, unmount};

use super::mounts::{BootError, Mount, directory};
use super::options::Options;

/// Where the parts of the root are put together, in the boot image.
const BASE: &str = "/base";
const DISK: &str = "/disk";
const ROOT: &str = "/root";

/// Mounts what is needed to find the devices: `/proc` and `/dev` of the boot image.
pub(crate) fn mount_early() -> Result<(), BootError> {
    proc(Path::new("/proc")).mount()?;
    // The kernel may have mounted it itself.
    if !Path::new("/dev/null").exists() {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        Mount { source: "dev", target: Path::new("/dev"), kind: "devtmpfs", flags, options: "mode=0755" }.mount()?;
    }
    Ok(())
}

/// Puts the root together and makes it `/`. Nothing of the boot image stays visible.
pub(crate) fn enter(options: &Options) -> Result<(), BootError> {
    let device = |path: &Path| path.to_string_lossy().into_owned();
    let (base, disk) = (device(&options.base), device(&options.disk));
    let none = MountFlags::empty();
    Mount { source: &base, target: Path::new(BASE), kind: "erofs", flags: MountFlags::RDONLY, options: "" }.mount()?;
    Mount { source: &disk, target: Path::new(DISK), kind: "ext4", flags: MountFlags::NOATIME, options: "" }.mount()?;
    for path in ["/disk/upper", "/disk/work"] {
        directory(Path::new(path), 0o755)?;
    }
    // redirect_dir: directories of the base can be renamed without being copied.
    let layers = "lowerdir=/base,upperdir=/disk/upper,workdir=/disk/work,redirect_dir=on";
    Mount { source: "sandbox", target: Path::new(ROOT), kind: "overlay", flags: none, options: layers }.mount()?;
    for name in ["dev", "proc"] {
        let target = Path::new(ROOT).join(name);
        directory(&target, 0o755)?;
        mount_move(Path::new("/").join(name), &target)
            .map_err(|error| BootError::call("moving a mount into the new root", error))?;
    }
    std::env::set_current_dir(ROOT).map_err(|error| BootError::call("entering the new root", error))?;
    rustix::process::pivot_root(".", ".").map_err(|error| BootError::call("changing the root", error))?;
    unmount(".", UnmountFlags::DETACH).map_err(|error| BootError::call("leaving the boot image", error))?;
    std::env::set_current_dir("/").map_err(|error| BootError::call("entering the new root", error))
}

/// Mounts what programs expect below `/`.
pub(crate) fn furnish() -> Result<(), BootError> {
    let harmless = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    let shared = MountFlags::NOSUID | MountFlags::NODEV;
    let mounts = [
        ("sys", "/sys", "sysfs", harmless, ""),
        ("cgroup", "/sys/fs/cgroup", "cgroup2", harmless, ""),
        ("run", "/run", "tmpfs", shared, "mode=0755,size=25%"),
        ("shm", "/dev/shm", "tmpfs", shared, "mode=1777,size=50%"),
        ("devpts", "/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, "gid=5,mode=0620,ptmxmode=0666"),
    ];
    for (source, target, kind, flags, options) in mounts {
        Mount { source, target: Path::new(target), kind, flags, options }.mount()?;
    }
    // Kernels may lack it, and few programs want it.
    let queues =
        Mount { source: "mqueue", target: Path::new("/dev/mqueue"), kind: "mqueue", flags: harmless, options: "" };
    if let Err(error) = queues.mount() {
        crate::console::say_error(&error);
    }
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("fd/0", "/dev/stdin"),
        ("fd/1", "/dev/stdout"),
        ("fd/2", "/dev/stderr"),
        ("pts/ptmx", "/dev/ptmx"),
    ];
    for (target, path) in links {
        link(target, Path::new(path))?;
    }
    directory(Path::new("/tmp"), 0o1777)?;
    directory(Path::new("/run/lock"), 0o1777)
}

fn proc(target: &Path) -> Mount<'_> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    Mount { source: "proc", target, kind: "proc", flags, options: "" }
}

/// A link in place of whatever is there.
fn link(target: &str, path: &Path) -> Result<(), BootError> {
    let made = match symlink(target, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path).and_then(|()| symlink(target, path))
        }
        result => result,
    };
    made.map_err(|source| BootError::Make { path: path.to_owned(), source })
}
