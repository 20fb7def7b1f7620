//! Control groups, version 1 and 2: where a sandbox's cgroup goes, what is written into it, how it ends.
//!
//! ```text
//! version 2   <anchor>/hutch/<scope>/<sandbox>              one directory
//! version 1   <own cgroup>/hutch/<scope>/<sandbox>          one in each of memory, cpu, pids (freezer, cpuacct)
//! ```
//!
//! On version 1 everything is made below the cgroup that the service itself is in, so whatever bounds the
//! service bounds its sandboxes too. On version 2 the anchor is the service's own cgroup where that was
//! delegated to it, else the top of the visible hierarchy: a cgroup with processes in it cannot have children
//! with controllers, and a login session's cgroup is not ours to empty.

mod group;
mod layout;
mod settings;

pub use group::{Directory, Group, GroupError};
pub use layout::{Controller, Hierarchy, Layout, LayoutError, Version};
pub use settings::{Setting, settings};
