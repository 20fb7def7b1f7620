//! Where cgroups can be made: read from `/proc/self/mountinfo` and `/proc/self/cgroup`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::group::{Directory, Group};

/// The two interfaces of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// The controllers that a jail uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// Bounds memory.
    Memory,
    /// Bounds and weighs processor time.
    Cpu,
    /// Bounds the number of processes and threads.
    Pids,
    /// Stops all processes at once (version 1 only; version 2 always can).
    Freezer,
    /// Counts processor time (version 1 only; version 2 counts with `cpu`).
    Cpuacct,
}

impl Controller {
    const ALL: [Self; 5] = [Self::Memory, Self::Cpu, Self::Pids, Self::Freezer, Self::Cpuacct];
    /// Without these no sandbox may start: its limits could not be kept.
    pub(super) const REQUIRED: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    /// The kernel's name of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
            Self::Cpuacct => "cpuacct",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.as_str() == name)
    }
}

/// One cgroup hierarchy with controllers that a jail uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its controllers, of those that a jail uses.
    pub controllers: Vec<Controller>,
    /// Where it is mounted: the top of what can be seen.
    pub top: PathBuf,
    /// The directory of the cgroup that this process is in.
    pub own: PathBuf,
}

/// Where this host's cgroups for sandboxes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The kernel's interface.
    pub version: Version,
    /// The hierarchies; exactly one with version 2.
    pub hierarchies: Vec<Hierarchy>,
}

/// Why no cgroup for a sandbox can be made on this host.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A file of `/proc` or of the cgroup file system cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No hierarchy has this controller.
    #[error("no cgroup hierarchy with the controller `{}` is mounted", controller.as_str())]
    Controller {
        /// The controller that is wanting.
        controller: Controller,
    },
    /// The controllers cannot be handed to child cgroups.
    #[error("the controllers cannot be enabled in {}", path.display())]
    Enable {
        /// The cgroup's directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The leaf into which processes of the anchor are moved on version 2, the service being one of them.
const SERVICE_LEAF: &str = "hutch-service";

impl Layout {
    /// Reads this process's view of the hierarchies.
    ///
    /// # Errors
    /// When `/proc` cannot be read or a needed controller is nowhere.
    pub fn discover() -> Result<Self, LayoutError> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|source| LayoutError::Read { path: PathBuf::from(path), source })
        };
        let layout = Self::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?, |top| {
            fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default()
        });
        layout.require_controllers()
    }

    /// The layout that these two texts describe; `controllers_of` gives the `cgroup.controllers` of a version 2
    /// hierarchy by its mount point. Version 1 is taken where it has the memory controller.
    fn parse(mountinfo: &str, own: &str, controllers_of: impl Fn(&Path) -> String) -> Self {
        let mounts: Vec<Mount> = mountinfo.lines().filter_map(Mount::parse).collect();
        let v1: Vec<Hierarchy> = mounts.iter().filter_map(|mount| mount.version_1(own)).collect();
        if v1.iter().any(|hierarchy| hierarchy.controllers.contains(&Controller::Memory)) {
            return Self { version: Version::V1, hierarchies: first_of_each(v1) };
        }
        let v2 = mounts.iter().find_map(|mount| mount.version_2(own, &controllers_of));
        Self { version: Version::V2, hierarchies: v2.into_iter().collect() }
    }

    fn require_controllers(self) -> Result<Self, LayoutError> {
        let has = |controller| self.hierarchies.iter().any(|hierarchy| hierarchy.controllers.contains(&controller));
        match Controller::REQUIRED.into_iter().find(|controller| !has(*controller)) {
            Some(controller) => Err(LayoutError::Controller { controller }),
            None => Ok(self),
        }
    }

    /// The existing directory below which a hierarchy's sandbox cgroups go.
    fn anchor(&self, hierarchy: &Hierarchy) -> PathBuf {
        let own = match hierarchy.own.file_name() {
            Some(name) if name == SERVICE_LEAF => hierarchy.own.parent().unwrap_or(&hierarchy.own),
            _ => hierarchy.own.as_path(),
        };
        match self.version {
            Version::V1 => own.to_owned(),
            Version::V2 if is_delegated(own) => own.to_owned(),
            Version::V2 => hierarchy.top.clone(),
        }
    }

    /// The directories of one sandbox's cgroup in the scope (a path below `hutch`) of one service.
    pub fn group(&self, scope: &str, name: &str) -> Group {
        let directory = |hierarchy: &Hierarchy| Directory {
            anchor: self.anchor(hierarchy),
            path: self.anchor(hierarchy).join("hutch").join(scope).join(name),
            controllers: hierarchy.controllers.clone(),
        };
        Group { version: self.version, directories: self.hierarchies.iter().map(directory).collect() }
    }

    /// The directories that hold the cgroups of one scope's sandboxes, and nothing else.
    pub fn scope_directories(&self, scope: &str) -> Vec<PathBuf> {
        self.hierarchies.iter().map(|hierarchy| self.anchor(hierarchy).join("hutch").join(scope)).collect()
    }

    /// Makes the anchor ready to have children with controllers. On version 2 that needs a cgroup without
    /// processes (the real root excepted), so those in it, the caller among them, move to a leaf beside.
    ///
    /// # Errors
    /// When the controllers cannot be enabled even then.
    pub fn prepare(&self) -> Result<(), LayoutError> {
        let (Version::V2, Some(hierarchy)) = (self.version, self.hierarchies.first()) else { return Ok(()) };
        let anchor = self.anchor(hierarchy);
        if enable_controllers(&anchor, &hierarchy.controllers).is_ok() {
            return Ok(());
        }
        let error = |source| LayoutError::Enable { path: anchor.clone(), source };
        let leaf = anchor.join(SERVICE_LEAF);
        fs::create_dir_all(&leaf).map_err(error)?;
        let processes = fs::read_to_string(anchor.join("cgroup.procs")).map_err(error)?;
        for process in processes.lines() {
            // One that ended meanwhile, or a thread of the kernel's own, is no reason to give up: what counts is
            // whether the controllers can be enabled afterwards.
            fs::write(leaf.join("cgroup.procs"), process).ok();
        }
        enable_controllers(&anchor, &hierarchy.controllers).map_err(error)
    }
}

/// Lets children of a version 2 cgroup have these controllers.
pub(super) fn enable_controllers(directory: &Path, controllers: &[Controller]) -> io::Result<()> {
    let line: Vec<String> = controllers.iter().map(|controller| format!("+{}", controller.as_str())).collect();
    fs::write(directory.join("cgroup.subtree_control"), line.join(" "))
}

/// Whether whoever rules the hierarchy gave this cgroup away: systemd marks it so.
fn is_delegated(directory: &Path) -> bool {
    let mut value = [0_u8; 8];
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let length = rustix::fs::getxattr(directory, *name, &mut value);
        length.is_ok_and(|length| value.get(..length) == Some(b"1"))
    })
}

/// One hierarchy may be mounted at several places; the first is as good as any.
fn first_of_each(hierarchies: Vec<Hierarchy>) -> Vec<Hierarchy> {
    let mut kept: Vec<Hierarchy> = Vec::new();
    for hierarchy in hierarchies {
        if !kept.iter().any(|other| other.controllers == hierarchy.controllers) {
            kept.push(hierarchy);
        }
    }
    kept
}

/// A line of `/proc/self/mountinfo`, as far as it is needed.
#[derive(Debug)]
struct Mount<'a> {
    root: String,
    point: PathBuf,
    file_system: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (unescape(before.next()?), PathBuf::from(unescape(before.next()?)));
        let mut after = after.split(' ');
        let (file_system, options) = (after.next()?, after.nth(1)?);
        Some(Self { root, point, file_system, options })
    }

    fn version_1(&self, own: &str) -> Option<Hierarchy> {
        if self.file_system != "cgroup" {
            return None;
        }
        let controllers: Vec<Controller> = self.options.split(',').filter_map(Controller::named).collect();
        let line = own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (names, path) = rest.split_once(':')?;
            let first = controllers.first()?.as_str();
            names.split(',').any(|name| name == first).then_some(path)
        })?;
        Some(Hierarchy { own: self.directory_of(line), top: self.point.clone(), controllers })
    }

    fn version_2(&self, own: &str, controllers_of: impl Fn(&Path) -> String) -> Option<Hierarchy> {
        if self.file_system != "cgroup2" {
            return None;
        }
        let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let mut controllers: Vec<Controller> =
            controllers_of(&self.point).split_whitespace().filter_map(Controller::named).collect();
        controllers.sort_unstable();
        Some(Hierarchy { own: self.directory_of(path), top: self.point.clone(), controllers })
    }

    /// The directory of a cgroup by its path in the hierarchy; the mount point when the mount does not show it.
    fn directory_of(&self, cgroup: &str) -> PathBuf {
        let below = Path::new(cgroup).strip_prefix(&self.root).ok();
        match below {
            Some(below) if !below.as_os_str().is_empty() => self.point.join(below),
            _ => self.point.clone(),
        }
    }
}

/// Undoes the octal escapes of `/proc/self/mountinfo`.
fn unescape(text: &str) -> String {
    ["\\040 ", "\\011\t", "\\012\n", "\\134\\"].iter().fold(text.to_owned(), |text, pair| {
        let (escape, character) = pair.split_at(4);
        text.replace(escape, character)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
25 20 0:22 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
26 20 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
27 20 0:24 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
28 20 0:25 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
29 20 0:26 / /sys/fs/cgroup/net_cls rw,relatime - cgroup cgroup rw,net_cls
";
    const V1_OWN: &str = "9:pids:/\n4:memory:/service/one\n3:cpu,cpuacct:/service\n0::/\n";

    #[test]
    fn version_1_goes_below_the_own_cgroup_of_each_hierarchy() {
        let layout = Layout::parse(V1, V1_OWN, |_| String::new()).require_controllers().unwrap();
        assert_eq!(layout.version, Version::V1);
        let group = layout.group("0123abcd", "sb-x");
        let paths: Vec<_> = group.directories.iter().map(|directory| directory.path.display().to_string()).collect();
        assert_eq!(
            paths,
            [
                "/sys/fs/cgroup/memory/service/one/hutch/0123abcd/sb-x",
                "/sys/fs/cgroup/cpu,cpuacct/service/hutch/0123abcd/sb-x",
                "/sys/fs/cgroup/pids/hutch/0123abcd/sb-x",
            ]
        );
    }

    #[test]
    fn version_2_goes_below_the_top_when_the_own_cgroup_is_not_delegated() {
        let mountinfo = "30 24 0:27 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let own = "0::/user.slice/user-0.slice/session-3.scope\n";
        let layout = Layout::parse(mountinfo, own, |_| "cpuset cpu io memory hugetlb pids\n".to_owned());
        let layout = layout.require_controllers().unwrap();
        assert_eq!(layout.version, Version::V2);
        let directory = layout.group("s", "sb-x").directories.remove(0);
        assert_eq!(directory.path, Path::new("/sys/fs/cgroup/hutch/s/sb-x"));
        assert_eq!(directory.controllers, [Controller::Memory, Controller::Cpu, Controller::Pids]);
    }

    #[test]
    fn a_container_that_sees_part_of_a_hierarchy_stays_in_that_part() {
        let mountinfo = "30 24 0:27 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let layout = Layout::parse(mountinfo, "0::/docker/abc/init\n", |_| "cpu memory pids".to_owned());
        assert_eq!(layout.hierarchies[0].own, Path::new("/sys/fs/cgroup/init"));
        let outside = Layout::parse(mountinfo, "0::/elsewhere\n", |_| "cpu memory pids".to_owned());
        assert_eq!(outside.hierarchies[0].own, Path::new("/sys/fs/cgroup"));
    }

    #[test]
    fn a_missing_controller_is_named() {
        let without_pids: String = V1.lines().filter(|line| !line.contains("pids")).collect::<Vec<_>>().join("\n");
        let error = Layout::parse(&without_pids, V1_OWN, |_| String::new()).require_controllers().unwrap_err();
        assert!(error.to_string().contains("`pids`"), "{error}");
        let error = Layout::parse("", "", |_| String::new()).require_controllers().unwrap_err();
        assert!(error.to_string().contains("`memory`"), "{error}");
    }

    #[test]
    fn a_mount_point_with_a_space_is_understood() {
        let mountinfo = "30 24 0:27 / /sys/fs/c\\040group rw - cgroup2 none rw\n";
        let layout = Layout::parse(mountinfo, "0::/\n", |_| "cpu memory pids".to_owned());
        assert_eq!(layout.hierarchies[0].top, Path::new("/sys/fs/c group"));
    }
}
