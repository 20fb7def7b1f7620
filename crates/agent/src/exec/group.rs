//! Control groups (cgroup v2): one for the agent, one for all of the users, and below that one for each
//! running command, so that a command's whole tree can be killed whatever it does to its sessions and parents.
//!
//! ```text
//! <root>              controllers enabled for the two below
//! ├── agent           memory.min: what the agent needs is not taken from it
//! └── user            memory.max and pids.max: what users may have together
//!     ├── 0           a command, or free for the next
//!     └── 1 …
//! ```
//!
//! Groups are used again: making and removing one for each command costs more than the command. A group is
//! free when nothing runs in it; background children of a finished command keep theirs. A group that was ever
//! killed is removed instead: kernels since 6.14 kill whatever is started into such a group, because they
//! compare its count of kills with that of the group that the parent is in.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// All control groups of the agent.
#[derive(Debug)]
pub(crate) struct Groups {
    root: PathBuf,
    free: Vec<Group>,
    made: u64,
    limits: Limits,
}

/// Bounds for the users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of memory for all together.
    pub(crate) memory_max: Option<u64>,
    /// Processes and threads of all together.
    pub(crate) processes_max: Option<u64>,
}

impl Limits {
    /// Processes of a single command: less than all may have, so that when one has used up its own a second
    /// can still be started to end it.
    fn processes_of_one(self) -> Option<u64> {
        self.processes_max.map(|max| max - (max / 8).min(64))
    }
}

/// The group of one command.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    directory: OwnedFd,
    events: OwnedFd,
    kill: OwnedFd,
    /// Absent where the memory controller is not to be had.
    memory_events: Option<OwnedFd>,
    /// Kills for want of memory before this command.
    kills_before: u64,
    /// Whether it was killed.
    killed: Cell<bool>,
}

/// Free groups that are kept.
const KEEP: usize = 16;

impl Groups {
    /// Makes the groups below `root`, a directory in a cgroup v2 hierarchy whose processes may be moved, with
    /// the agent in a group of its own. Controllers that are not to be had are done without.
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        let (agent, user) = (root.join("agent"), root.join("user"));
        make(&agent)?;
        make(&user)?;
        fs::write(agent.join("cgroup.procs"), "0")?;
        for directory in [root, &user] {
            for controller in ["memory", "pids", "cpu"] {
                // The cpu controller only between agent and users: commands share alike.
                if directory == root || controller != "cpu" {
                    let _ = fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}"));
                }
            }
        }
        // While users keep the processor busy the agent still gets it first.
        let _ = fs::write(agent.join("cpu.weight"), "10000");
        let mut groups = Self { root: root.to_owned(), free: Vec::new(), made: 0, limits: Limits::default() };
        // Whether a group can be made, entered and killed is seen now and not at the first command.
        let first = groups.take()?;
        groups.give_back(first);
        Ok(groups)
    }

    /// Memory that the kernel leaves to the agent whatever the users need.
    pub(crate) fn protect_agent(&self, bytes: u64) {
        let _ = fs::write(self.root.join("agent/memory.min"), bytes.to_string());
    }

    /// Bounds all commands, those that run included. Bounds whose controller is not to be had are not kept.
    pub(crate) fn limit(&mut self, limits: Limits) -> io::Result<()> {
        let (user, before) = (self.root.join("user"), self.limits);
        if limits.memory_max != before.memory_max {
            write_limit(&user.join("memory.max"), limits.memory_max)?;
            self.limits.memory_max = limits.memory_max;
        }
        if limits.processes_max != before.processes_max {
            write_limit(&user.join("pids.max"), limits.processes_max)?;
            self.limits.processes_max = limits.processes_max;
            for group in &self.free {
                group.limit(limits)?;
            }
        }
        Ok(())
    }

    /// A free group, made if there is none.
    pub(crate) fn take(&mut self) -> io::Result<Group> {
        let mut group = match self.free.pop() {
            Some(group) => group,
            None => {
                let path = self.root.join("user").join(self.made.to_string());
                self.made += 1;
                let group = Group::make(path)?;
                group.limit(self.limits)?;
                group
            }
        };
        group.kills_before = group.all_kills();
        Ok(group)
    }

    /// A group in which nothing runs any more.
    pub(crate) fn give_back(&mut self, group: Group) {
        if self.free.len() < KEEP && !group.killed.get() {
            self.free.push(group);
        } else {
            // Nothing is in it; if it stays all the same it is an empty directory.
            let _ = fs::remove_dir(&group.path);
        }
    }

    /// A number from a file of the users' group, for example `memory.current`.
    pub(crate) fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.root.join("user").join(file)).ok()?.trim().parse().ok()
    }

    /// A number behind a key of a file of the users' group, for example `usage_usec` in `cpu.stat`.
    pub(crate) fn keyed(&self, file: &str, key: &str) -> Option<u64> {
        keyed(&fs::read(self.root.join("user").join(file)).ok()?, key)
    }

    /// Kills everything of the users.
    pub(crate) fn kill_all(&self) -> io::Result<()> {
        fs::write(self.root.join("user/cgroup.kill"), "1")
    }

    /// Removes all groups that are empty, the agent's included: for an agent that is no init and ends.
    pub(crate) fn remove(self) {
        let parent = self.root.parent().map(|parent| parent.join("cgroup.procs"));
        if let Some(parent) = parent {
            let _ = fs::write(parent, "0");
        }
        drop(self.free);
        remove_empty(&self.root);
    }
}

/// Removes a group and those below it as far as nothing runs in them.
pub(crate) fn remove_empty(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    let _ = fs::remove_dir(root);
}

impl Group {
    fn make(path: PathBuf) -> io::Result<Self> {
        make(&path)?;
        let directory = open(&path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let file = |name: &str, flags| rustix::fs::openat(&directory, name, flags | OFlags::CLOEXEC, Mode::empty());
        let events = file("cgroup.events", OFlags::RDONLY)?;
        let kill = file("cgroup.kill", OFlags::WRONLY)?;
        let memory_events = file("memory.events", OFlags::RDONLY).ok();
        Ok(Self { path, directory, events, kill, memory_events, kills_before: 0, killed: Cell::new(false) })
    }

    /// The directory, to start a process in.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// A descriptor that has an exceptional condition whenever the group may have become empty.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Whether anything runs in it.
    pub(crate) fn populated(&self) -> bool {
        // A group that cannot be asked is not given to another command.
        read_at_start(&self.events).is_none_or(|events| keyed(&events, "populated") != Some(0))
    }

    /// Kills everything in it, also what forks meanwhile.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.killed.set(true);
        rustix::io::write(&self.kill, b"1").map(|_| ()).map_err(Into::into)
    }

    /// The processes in it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// How many of the command's processes were killed for want of memory.
    pub(crate) fn out_of_memory_kills(&self) -> u64 {
        self.all_kills().saturating_sub(self.kills_before)
    }

    fn all_kills(&self) -> u64 {
        let events = self.memory_events.as_ref().and_then(read_at_start);
        events.and_then(|events| keyed(&events, "oom_kill")).unwrap_or(0)
    }

    fn limit(&self, limits: Limits) -> io::Result<()> {
        write_limit(&self.path.join("pids.max"), limits.processes_of_one())
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn write_limit(file: &Path, limit: Option<u64>) -> io::Result<()> {
    let text = limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string());
    match fs::write(file, text) {
        // The controller is not to be had.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(())
        }
        result => result,
    }
}

fn read_at_start(file: &OwnedFd) -> Option<Vec<u8>> {
    let mut content = vec![0; 512];
    let length = rustix::io::pread(file, &mut content, 0).ok()?;
    content.truncate(length);
    Some(content)
}

/// The number behind a key in a file of `key number` lines.
fn keyed(content: &[u8], key: &str) -> Option<u64> {
    let text = std::str::from_utf8(content).ok()?;
    text.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == key)?.1.trim().parse().ok()
}

/// The directory in a cgroup v2 hierarchy that this process is in and may make groups in, if there is one.
pub(crate) fn own_directory() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
    own_directory_in(&mounts, &memberships)
}

fn own_directory_in(mounts: &str, memberships: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (after.split(' ').next() == Some("cgroup2")).then(|| before.split(' ').nth(4))?
    })?;
    let path = memberships.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_whole_words() {
        let events = b"low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n";
        assert_eq!(keyed(events, "oom_kill"), Some(4));
        assert_eq!(keyed(events, "oom_"), None);
        assert_eq!(keyed(b"populated 1\nfrozen 0\n", "populated"), Some(1));
        assert_eq!(keyed(&[0xff, b' ', b'1'], "x"), None);
    }

    #[test]
    fn the_unified_hierarchy_is_found_beside_others() {
        let mounts = "30 29 0:26 / /sys/fs/cgroup/cpu rw shared:3 - cgroup cgroup rw,cpu\n\
            40 29 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let memberships = "8:pids:/x\n0::/a/b\n";
        assert_eq!(own_directory_in(mounts, memberships), Some("/sys/fs/cgroup/unified/a/b".into()));
        assert_eq!(own_directory_in("", memberships), None);
        assert_eq!(own_directory_in(mounts, "8:pids:/x\n"), None);
    }

    #[test]
    fn one_command_never_gets_all_processes() {
        let of_one = |max| Limits { processes_max: max, ..Limits::default() }.processes_of_one();
        assert_eq!((of_one(None), of_one(Some(4096)), of_one(Some(80))), (None, Some(4032), Some(70)));
    }
}
