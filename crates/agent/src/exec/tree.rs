//! A command's processes where there are no control groups: those of its session, and whatever descends from
//! them. A process that leaves the session *and* whose ancestors are gone escapes this; in a guest there are
//! always control groups.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// A process as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: i32,
    session: i32,
    zombie: bool,
}

/// The living processes of the tree whose leader has, or had, this process id.
pub(crate) fn processes(leader: i32) -> Vec<i32> {
    members(leader, &snapshot())
}

/// Sends a signal to the tree.
pub(crate) fn signal(leader: i32, signal: Signal) {
    for pid in processes(leader).into_iter().filter_map(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// Kills the tree: again and again while something forks faster, but not for ever.
pub(crate) fn kill(leader: i32) {
    for _ in 0..100 {
        let processes = processes(leader);
        if processes.is_empty() {
            return;
        }
        for pid in processes.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn snapshot() -> BTreeMap<i32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// `pid (name) state parent group session …`; the name may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { parent, session, zombie })
}

fn members(leader: i32, all: &BTreeMap<i32, Process>) -> Vec<i32> {
    let belongs = |mut pid: i32| {
        // A chain of parents cannot be longer than there are processes.
        for _ in 0..=all.len() {
            let Some(process) = all.get(&pid) else { return false };
            if pid == leader || process.session == leader || process.parent == leader {
                return true;
            }
            pid = process.parent;
        }
        false
    };
    let living = all.iter().filter(|(_, process)| !process.zombie).map(|(pid, _)| *pid);
    living.filter(|pid| belongs(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_anything() {
        let process = Process { parent: 7, session: 9, zombie: false };
        assert_eq!(parse("12 (a) R 1 (b) S 7 8 9 0 -1\n"), Some(process));
        assert_eq!(parse("12 (x) Z 7 8 9 0"), Some(Process { zombie: true, ..process }));
        assert_eq!(parse(""), None);
        assert_eq!(parse("12 (x) R"), None);
    }

    #[test]
    fn the_tree_is_the_session_and_all_descendants() {
        let process = |parent, session| Process { parent, session, zombie: false };
        let all = BTreeMap::from([
            (1, process(0, 1)),
            (10, process(1, 10)),
            (11, process(10, 10)),
            // Left the session, but its parent did not.
            (12, process(11, 12)),
            (13, process(12, 12)),
            // Lost its parent, but is in the session.
            (14, process(1, 10)),
            (15, Process { zombie: true, ..process(10, 10) }),
            (20, process(1, 20)),
            // Its parent is not there: a loop or a race must not hang.
            (30, process(31, 30)),
            (31, process(30, 30)),
        ]);
        assert_eq!(members(10, &all), [10, 11, 12, 13, 14]);
    }
}
