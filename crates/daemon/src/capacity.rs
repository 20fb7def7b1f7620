//! How many sandboxes fit: memory that was promised, and floors under what the host has left.
//!
//! Memory is promised at create and given back when the last trace of the sandbox is gone. A sandbox that begins as a
//! template shares its pages with all others and takes a few MiB of its own until it writes, so more is promised than
//! there is: `memory_overcommit_percent` of what was set aside. Disks are sparse and may together be larger than the
//! host's as well. What keeps the host from running out of either is that nothing new starts below the floors; where
//! the sandboxes' memory must be there whatever they do, an overcommit of 100 makes it so.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use hutch_units::Mebibytes;

/// The bounds that the operator set or that the host gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Memory that is set aside for all sandboxes together, in MiB. No single one may have more.
    pub memory_mib: u64,
    /// How much of that is promised, in per cent; at least 100.
    pub memory_overcommit_percent: u64,
    /// Memory that stays available on the host, in MiB: nothing new starts below.
    pub memory_floor_mib: u64,
    /// How many sandboxes there may be.
    pub sandboxes: u64,
    /// Space that stays free on the data directory's file system, in bytes.
    pub disk_floor_bytes: u64,
    /// Process ids that stay free on the host.
    pub process_floor: u64,
}

/// What the host has left right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Free space on the data directory's file system, in bytes.
    pub disk_bytes: u64,
    /// Process ids that are free.
    pub processes: u64,
    /// Memory that is available, in MiB.
    pub memory_mib: u64,
}

/// Why there is no room. Waiting or destroying something helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The memory set aside is promised already.
    #[error("no capacity: {asked_mib} MiB of memory asked for, {free_mib} of {total_mib} MiB free")]
    Memory {
        /// What the sandbox would need.
        asked_mib: u64,
        /// What is left.
        free_mib: u64,
        /// What there is.
        total_mib: u64,
    },
    /// The sandboxes use nearly all of the host's memory.
    #[error("no capacity: {available_mib} MiB of memory available on the host, {floor_mib} MiB must stay so")]
    HostMemory {
        /// What is left.
        available_mib: u64,
        /// What must stay.
        floor_mib: u64,
    },
    /// There are as many sandboxes as there may be.
    #[error("no capacity: there are {count} sandboxes, the most that may be")]
    Sandboxes {
        /// How many there are.
        count: u64,
    },
    /// The data directory's file system is nearly full.
    #[error("no capacity: {free_mib} MiB of disk free on the host, {floor_mib} MiB must stay free")]
    Disk {
        /// What is left.
        free_mib: u64,
        /// What must stay.
        floor_mib: u64,
    },
    /// The host has nearly no process ids left.
    #[error("no capacity: {free} process ids free on the host, {floor} must stay free")]
    Processes {
        /// What is left.
        free: u64,
        /// What must stay.
        floor: u64,
    },
}

/// The books: what is promised to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Promised {
    memory_mib: u64,
    sandboxes: u64,
}

impl Promised {
    /// Promises memory to one more sandbox, or says why not.
    fn admit(&mut self, asked: Mebibytes, bounds: Bounds, supply: Supply) -> Result<(), NoRoom> {
        let asked_mib = u64::from(asked.0);
        let total_mib = bounds.promisable_mib();
        let free_mib = total_mib.saturating_sub(self.memory_mib);
        if self.sandboxes >= bounds.sandboxes {
            return Err(NoRoom::Sandboxes { count: self.sandboxes });
        }
        if asked_mib > free_mib.min(bounds.memory_mib) {
            return Err(NoRoom::Memory { asked_mib, free_mib: free_mib.min(bounds.memory_mib), total_mib });
        }
        if supply.memory_mib < bounds.memory_floor_mib {
            let (available_mib, floor_mib) = (supply.memory_mib, bounds.memory_floor_mib);
            return Err(NoRoom::HostMemory { available_mib, floor_mib });
        }
        if supply.disk_bytes < bounds.disk_floor_bytes {
            let (free_mib, floor_mib) = (supply.disk_bytes >> 20, bounds.disk_floor_bytes >> 20);
            return Err(NoRoom::Disk { free_mib, floor_mib });
        }
        if supply.processes < bounds.process_floor {
            return Err(NoRoom::Processes { free: supply.processes, floor: bounds.process_floor });
        }
        self.take(asked);
        Ok(())
    }

    fn take(&mut self, asked: Mebibytes) {
        self.memory_mib += u64::from(asked.0);
        self.sandboxes += 1;
    }

    fn give_back(&mut self, asked: Mebibytes) {
        self.memory_mib = self.memory_mib.saturating_sub(u64::from(asked.0));
        self.sandboxes = self.sandboxes.saturating_sub(1);
    }
}

/// The books, shared.
#[derive(Debug, Clone)]
pub struct Capacity {
    bounds: Bounds,
    promised: Arc<Mutex<Promised>>,
}

/// A place for one sandbox; given back when it is dropped.
pub struct Place {
    memory: Mebibytes,
    promised: Arc<Mutex<Promised>>,
}

impl Capacity {
    /// Empty books with these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, promised: Arc::default() }
    }

    /// A place for a new sandbox.
    ///
    /// # Errors
    /// [`NoRoom`] says what is short.
    pub fn admit(&self, memory: Mebibytes, supply: Supply) -> Result<Place, NoRoom> {
        self.books().admit(memory, self.bounds, supply)?;
        Ok(self.place(memory))
    }

    /// The place of a sandbox that is there already, whether or not it fits into today's bounds.
    pub fn occupy(&self, memory: Mebibytes) -> Place {
        self.books().take(memory);
        self.place(memory)
    }

    /// Memory that can still be promised, in MiB.
    pub fn free_mib(&self) -> u64 {
        self.bounds.promisable_mib().saturating_sub(self.books().memory_mib)
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    fn place(&self, memory: Mebibytes) -> Place {
        Place { memory, promised: Arc::clone(&self.promised) }
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Promised> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.memory);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Place({} MiB)", self.memory.0)
    }
}

impl Supply {
    /// Asks the host. What it does not tell counts as plenty: the floors are a safeguard, not a condition.
    pub fn measure(data: &Path) -> Self {
        let disk = rustix::fs::statvfs(data).map(|status| status.f_bavail.saturating_mul(status.f_frsize));
        Self {
            disk_bytes: disk.unwrap_or(u64::MAX),
            processes: free_processes().unwrap_or(u64::MAX),
            memory_mib: memory("MemAvailable:").unwrap_or(u64::MAX),
        }
    }
}

impl Bounds {
    /// What is promised of the memory set aside, in per cent, unless told otherwise. An idle sandbox of the smallest
    /// shape takes a sixteenth of what it is promised or less; half of that is left for those that work.
    pub const OVERCOMMIT: u64 = 800;

    /// Nine tenths of the host's memory, and floors that leave the host itself room to work.
    pub fn of_host() -> Self {
        let memory_mib = memory("MemTotal:").unwrap_or(1138);
        Self {
            memory_mib: memory_mib * 9 / 10,
            memory_overcommit_percent: Self::OVERCOMMIT,
            memory_floor_mib: (memory_mib / 20).min(1024),
            sandboxes: 10_000,
            disk_floor_bytes: 1 << 30,
            process_floor: 512,
        }
    }

    /// How much memory is promised at most, in MiB.
    pub fn promisable_mib(&self) -> u64 {
        self.memory_mib.saturating_mul(self.memory_overcommit_percent.max(100)) / 100
    }
}

/// `pid_max` less the threads there are, from the fourth field of `/proc/loadavg`: `running/all`.
fn free_processes() -> Option<u64> {
    let most: u64 = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse().ok()?;
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    let (_, all) = load.split_whitespace().nth(3)?.split_once('/')?;
    Some(most.saturating_sub(all.parse().ok()?))
}

/// An amount of `/proc/meminfo`, in MiB.
fn memory(name: &str) -> Option<u64> {
    std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, name)).map(|kib| kib / 1024)
}

/// The number after a word, in the form of `/proc/meminfo`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds {
        memory_mib: 1000,
        memory_overcommit_percent: 100,
        memory_floor_mib: 200,
        sandboxes: 3,
        disk_floor_bytes: 100 << 20,
        process_floor: 50,
    };
    const PLENTY: Supply = Supply { disk_bytes: u64::MAX, processes: u64::MAX, memory_mib: u64::MAX };

    #[test]
    fn each_bound_refuses_by_its_own_name() {
        let capacity = Capacity::new(BOUNDS);
        let first = capacity.admit(Mebibytes(600), PLENTY).unwrap();
        assert_eq!(
            capacity.admit(Mebibytes(401), PLENTY).unwrap_err(),
            NoRoom::Memory { asked_mib: 401, free_mib: 400, total_mib: 1000 }
        );
        let little_disk = Supply { disk_bytes: (100 << 20) - 1, ..PLENTY };
        assert!(matches!(capacity.admit(Mebibytes(1), little_disk), Err(NoRoom::Disk { floor_mib: 100, .. })));
        let little_memory = Supply { memory_mib: 199, ..PLENTY };
        assert!(matches!(capacity.admit(Mebibytes(1), little_memory), Err(NoRoom::HostMemory { floor_mib: 200, .. })));
        let few = Supply { processes: 49, ..PLENTY };
        assert!(matches!(capacity.admit(Mebibytes(1), few), Err(NoRoom::Processes { free: 49, .. })));
        let _rest = (capacity.admit(Mebibytes(1), PLENTY).unwrap(), capacity.admit(Mebibytes(1), PLENTY).unwrap());
        assert_eq!(capacity.admit(Mebibytes(1), PLENTY).unwrap_err(), NoRoom::Sandboxes { count: 3 });
        drop(first);
        assert_eq!(capacity.free_mib(), 998);
    }

    #[test]
    fn more_is_promised_than_there_is_but_not_to_one() {
        let capacity = Capacity::new(Bounds { memory_overcommit_percent: 250, ..BOUNDS });
        assert!(capacity.admit(Mebibytes(1001), PLENTY).is_err());
        let _places = [1000, 1000, 500].map(|memory| capacity.admit(Mebibytes(memory), PLENTY).unwrap());
        assert_eq!(capacity.free_mib(), 0);
        let smallest = 500 * 256;
        let host = Bounds { memory_mib: 24_000 * 9 / 10, memory_overcommit_percent: Bounds::OVERCOMMIT, ..BOUNDS };
        assert!(host.promisable_mib() >= smallest, "500 of the smallest shape on a host with 24 GiB");
    }

    #[test]
    fn what_is_there_is_counted_even_beyond_the_bounds() {
        let capacity = Capacity::new(BOUNDS);
        let place = capacity.occupy(Mebibytes(5000));
        assert_eq!(capacity.free_mib(), 0);
        assert!(capacity.admit(Mebibytes(1), PLENTY).is_err());
        drop(place);
        assert_eq!(capacity.free_mib(), 1000);
    }

    #[test]
    fn the_host_tells() {
        let bounds = Bounds::of_host();
        let supply = Supply::measure(Path::new("/"));
        assert!(bounds.memory_mib > 0 && supply.disk_bytes > 0 && supply.processes > 0);
    }

    proptest! {
        #[test]
        fn admitted_memory_never_exceeds_the_bound(
            steps in prop::collection::vec((any::<bool>(), 1_u32..600), 0..60)
        ) {
            let capacity = Capacity::new(Bounds { sandboxes: u64::MAX, ..BOUNDS });
            let mut places = Vec::new();
            for (enter, memory) in steps {
                if enter {
                    places.extend(capacity.admit(Mebibytes(memory), PLENTY));
                } else {
                    places.pop();
                }
                let used: u64 = places.iter().map(|place: &Place| u64::from(place.memory.0)).sum();
                prop_assert!(used <= 1000);
                prop_assert_eq!(capacity.free_mib(), 1000 - used);
            }
        }
    }
}
