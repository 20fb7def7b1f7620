//! Processes of the host by pidfd: which one it is, when it ends, how it ended.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use hutch_jail::cgroup::Group;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use tokio::sync::watch;

use super::console::Console;
use super::sys;
use crate::machine::{Exit, ExitReason};

/// A process that is held: its id cannot come to mean another one.
#[derive(Debug)]
pub(super) struct Process(OwnedFd);

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Process {
    /// The process with this id that began at this time; `None` when it is gone.
    pub(super) fn open(pid: u32, start_time: u64) -> io::Result<Option<Self>> {
        let Some(held) = Self::open_any(pid)? else { return Ok(None) };
        // In this order: the id is held now, so what it says about itself is about what is held.
        Ok((start_time_of(pid) == Some(start_time)).then_some(held))
    }

    /// The process that has this id now.
    pub(super) fn open_any(pid: u32) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends it. That it already has ended is no error.
    pub(super) fn kill(&self) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.0, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Its status if it has ended and was our child; taken, so that nothing of it is left in the process table.
    pub(super) fn reap(&self) -> Option<WaitIdStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // ECHILD: it was adopted after a restart, and its own parent takes the status.
        rustix::process::waitid(WaitId::PidFd(self.0.as_fd()), options).ok().flatten()
    }
}

/// Waits for the end of a machine's kernel in a task of its own, and says it to all that listen. What its console
/// said last is written to `log` before.
pub(super) fn watch(
    process: Process,
    console: Console,
    group: Group,
    log: Option<PathBuf>,
) -> io::Result<watch::Receiver<Option<Exit>>> {
    let process = sys::readable(process.0)?;
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        // A pidfd is readable once the process has ended, and stays so. An error means that the runtime ends.
        if process.readable().await.is_err() {
            return;
        }
        let status = Process(process.into_inner()).reap();
        let console = console.tail();
        if let Some(log) = log.filter(|_| !console.is_empty()) {
            // For whoever looks into the directory afterwards; what matters is told to those who listen.
            fs::write(log, &console).ok();
        }
        let exit = Exit { at: SystemTime::now(), reason: reason(status, &group), console };
        sender.send_replace(Some(exit));
    });
    Ok(receiver)
}

fn reason(status: Option<WaitIdStatus>, group: &Group) -> ExitReason {
    let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal);
    let killed = status.is_none() || signal == Some(Signal::KILL.as_raw());
    if killed && group.memory_kills() > 0 {
        return ExitReason::OutOfMemory;
    }
    match (signal, status.and_then(|status| status.exit_status())) {
        (Some(signal), _) => ExitReason::Signalled { signal },
        (None, Some(status)) => ExitReason::Exited { status },
        (None, None) => ExitReason::Unknown,
    }
}

/// Field 22 of `/proc/<pid>/stat`; `None` when there is no such process, or it has ended and waits to be reaped.
pub(super) fn start_time_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may itself hold spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_no_other() {
        let pid = std::process::id();
        let start_time = start_time_of(pid).unwrap();
        assert!(Process::open(pid, start_time).unwrap().is_some());
        assert!(Process::open(pid, start_time + 1).unwrap().is_none());
        assert!(Process::open(u32::MAX, start_time).unwrap().is_none());
    }
}
