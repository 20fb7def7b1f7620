//! The agent as the guest's first process.
//!
//! ```text
//! kernel ──► mount_early ──► enter ──► furnish ──► control groups ──► serve, for ever
//!                 └────────────┴──────────┴─────────────┴──► says why on the console, switches off
//! ```

use std::fs;
use std::path::Path;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, reboot};

use super::mounts::BootError;
use super::options::Options;
use super::root;
use crate::agent::{Agent, Setup};
use crate::channel::Source;
use crate::console;
use crate::exec::group::Groups;
use crate::machine::limits;
use crate::self_signal::{self, Sources};
use crate::sys;

/// Open files of the agent, and of commands, which inherit the bound.
const FILES: u64 = 65_536;

/// Boots the guest and serves the host. Never returns: a guest that cannot serve is switched off.
pub(crate) fn run() -> ! {
    let started = Instant::now();
    let end = match boot(started) {
        Ok(agent) => agent.serve(),
        Err(error) => Err(Box::from(error)),
    };
    match end {
        Ok(()) => console::say("switching off"),
        Err(error) => console::say_error(error.as_ref()),
    }
    power_off()
}

/// Writes file systems out and switches the guest off.
pub(crate) fn power_off() -> ! {
    rustix::fs::sync();
    loop {
        let result = reboot(RebootCommand::PowerOff);
        console::say(&format!("the power stays on: {result:?}"));
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Nothing in an idle guest is to wake up: hundreds of them share the processors of a host. The kernel would look
/// twice a second whether memory should be compacted ahead of need, for huge pages that nobody asks for.
fn let_sleep() {
    let path = "/proc/sys/vm/compaction_proactiveness";
    // A kernel without it does not wake up for it.
    if Path::new(path).exists()
        && let Err(error) = fs::write(path, "0")
    {
        console::say(&format!("{path} could not be written: {error}"));
    }
}

fn boot(started: Instant) -> Result<Agent, BootError> {
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    root::mount_early()?;
    let options = Options::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default());
    root::enter(&options)?;
    root::furnish()?;
    let_sleep();
    if let Err(error) = sys::loopback::up() {
        // Commands without a network still run.
        console::say(&format!("the loopback interface stays down: {error}"));
    }
    let files = Rlimit { current: Some(FILES), maximum: Some(FILES) };
    setrlimit(Resource::Nofile, files).map_err(|error| BootError::call("setting the bound of open files", error))?;
    let groups = Groups::new(Path::new("/sys/fs/cgroup"))
        .map_err(|error| BootError::call("setting up control groups", error))?;
    groups.protect_agent(limits::AGENT);
    // The first process is never chosen by the kernel when memory is short; with its pages locked it also
    // goes on.
    if let Err(error) = sys::memory::lock_present() {
        console::say(&format!("the agent's memory is not locked: {error}"));
    }
    let (signals, _) = Sources::new(self_signal::sources::PORT, Path::new(self_signal::sources::FIFO));
    let source = Source::Device(options.channel);
    let setup = Setup { source, groups: Some(groups), signals, owns_machine: true, started };
    Agent::new(setup).map_err(|error| BootError::call("setting up the agent's loop", error))
}
