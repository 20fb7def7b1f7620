//! What the host has told the guest.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use hutch_protocol::machine::{ClockSet, Configure, Configured, ENTROPY_MAX, ENTROPY_MIN, Reseed, Reseeded, SetClock};
use hutch_protocol::{ByteText, Code, Failure};

use super::{clock, identity, limits, stats};
use crate::exec::group::Groups;
use crate::sys::entropy::Generator;

/// What was configured, and what the answer to it needs.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// Whether this process is a guest's init and so may change the machine; else it only serves.
    owns_machine: bool,
    /// From the agent's start until it served.
    boot: Duration,
    /// The kernel's random number generator, once it was needed: it stays open.
    generator: Option<Generator>,
    /// Environment of every command; `None` before the host has configured the guest.
    env: Option<BTreeMap<String, ByteText>>,
}

impl Configuration {
    /// Nothing configured yet.
    pub(crate) fn new(owns_machine: bool, boot: Duration) -> Self {
        Self { owns_machine, boot, generator: None, env: None }
    }

    /// The environment of every command, once there is one.
    pub(crate) fn env(&self) -> Result<&BTreeMap<String, ByteText>, Failure> {
        self.env.as_ref().ok_or_else(|| Failure::new(Code::NotConfigured, "the guest was not configured yet"))
    }

    /// Does everything that the request says, or nothing that can be seen by users' programs.
    pub(crate) fn apply(&mut self, request: Configure, groups: Option<&mut Groups>) -> Result<Configured, Failure> {
        let began = Instant::now();
        check_entropy(&request.entropy)?;
        if !request.hostname.is_empty() {
            identity::check(&request.hostname)?;
        }
        if let Some(id) = &request.machine_id {
            identity::check_machine_id(id)?;
        }
        if let Some(name) = request.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(Failure::new(Code::InvalidRequest, format!("env {name:?} is no name of a variable")));
        }
        let control_groups = groups.is_some();
        if self.owns_machine {
            self.add_entropy(&request.entropy)?;
            if let Some(wall_ns) = request.wall_ns {
                clock::correct(wall_ns).map_err(|error| failure("the clock could not be set", &error.into()))?;
            }
            if !request.hostname.is_empty() {
                identity::set(&request.hostname).map_err(|error| failure("the host name could not be set", &error))?;
            }
            if let Some(id) = &request.machine_id {
                identity::set_machine_id(id);
            }
            if let Some(groups) = groups {
                let total = stats::memory_total();
                let limits = limits::limits(total, request.memory_reserve_bytes, request.processes_max);
                groups.limit(limits).map_err(|error| failure("the limits could not be set", &error))?;
            }
        }
        self.env = Some(request.env);
        let name = rustix::system::uname();
        Ok(Configured {
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel_release: name.release().to_string_lossy().into_owned(),
            machine: name.machine().to_string_lossy().into_owned(),
            boot_wall_ns: u64::try_from(clock::wall_ns() - clock::since_boot_ns()).unwrap_or(0),
            boot_us: u64::try_from(self.boot.as_micros()).unwrap_or(u64::MAX),
            control_groups,
            took_us: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        })
    }

    /// Does ahead what makes the first [`Configuration::apply`] slow, for a machine that is saved after this.
    pub(crate) fn warm(&mut self, groups: Option<&mut Groups>) {
        if self.owns_machine {
            identity::warm();
            // What fails here fails again, and is said, when it is needed.
            let _ = self.generator();
            let _ = groups.map(|groups| groups.limit(limits::limits(stats::memory_total(), None, None)));
            // What was written until now is not for each machine that starts from this one to write again.
            rustix::fs::sync();
        }
    }

    /// Sets the clock.
    pub(crate) fn set_clock(&self, request: &SetClock) -> Result<ClockSet, Failure> {
        if !self.owns_machine {
            return Err(not_ours("clock"));
        }
        let was_ahead_ns =
            clock::set(request.wall_ns).map_err(|error| failure("the clock could not be set", &error.into()))?;
        Ok(ClockSet { was_ahead_ns })
    }

    /// Reseeds the random number generator.
    pub(crate) fn reseed(&mut self, request: &Reseed) -> Result<Reseeded, Failure> {
        check_entropy(&request.entropy)?;
        if !self.owns_machine {
            return Err(not_ours("random number generator"));
        }
        self.add_entropy(&request.entropy)?;
        Ok(Reseeded {})
    }

    fn add_entropy(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let added = self.generator().and_then(|generator| generator.add(bytes));
        added.map_err(|error| failure("the random number generator could not be seeded", &error))
    }

    fn generator(&mut self) -> io::Result<&Generator> {
        if self.generator.is_none() {
            self.generator = Some(Generator::open()?);
        }
        Ok(self.generator.as_ref().expect("it was just opened if it was not open"))
    }
}

fn check_entropy(bytes: &[u8]) -> Result<(), Failure> {
    if (ENTROPY_MIN..=ENTROPY_MAX).contains(&bytes.len()) {
        return Ok(());
    }
    let message = format!("entropy has {} bytes: it must have {ENTROPY_MIN} to {ENTROPY_MAX}", bytes.len());
    Err(Failure::new(Code::InvalidRequest, message))
}

fn not_ours(what: &str) -> Failure {
    Failure::new(Code::Permission, format!("the {what} is not this agent's: it serves on a machine of others"))
}

fn failure(what: &str, error: &io::Error) -> Failure {
    Failure { code: Code::Other, message: format!("{what}: {error}"), errno: error.raw_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entropy() -> Configure {
        Configure { entropy: vec![7; 64], ..Configure::default() }
    }

    fn configure(change: impl FnOnce(&mut Configure)) -> Result<Configured, Failure> {
        let mut request = entropy();
        change(&mut request);
        let mut configuration = Configuration::new(false, Duration::from_millis(3));
        assert_eq!(configuration.env().unwrap_err().code, Code::NotConfigured);
        let result = configuration.apply(request, None);
        assert_eq!(configuration.env().is_ok(), result.is_ok());
        result
    }

    #[test]
    fn the_answer_says_what_runs_here() {
        let configured = configure(|_| {}).unwrap();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(configured.kernel_release, release.trim());
        assert_eq!((configured.boot_us, configured.control_groups), (3000, false));
    }

    #[test]
    fn wrong_requests_name_the_field_and_change_nothing() {
        let message = |change: fn(&mut Configure)| configure(change).unwrap_err().message;
        assert!(message(|request| request.entropy.truncate(63)).contains("entropy has 63 bytes"));
        assert!(message(|request| request.entropy.resize(4097, 0)).contains("entropy"));
        assert!(message(|request| request.hostname = "a b".into()).contains("hostname"));
        for id in ["", "abc", &"A".repeat(32), &"g".repeat(32), &"0".repeat(32), &"a".repeat(33)] {
            let request = Configure { machine_id: Some(id.to_owned()), ..entropy() };
            let failure = Configuration::new(false, Duration::ZERO).apply(request, None).unwrap_err();
            assert!(failure.message.contains("machine_id"), "{failure:?}");
        }
        assert!(configure(|request| request.machine_id = Some("0a".repeat(16))).is_ok());
        assert!(message(|request| drop(request.env.insert("A=".into(), "b".into()))).contains("\"A=\""));
    }

    #[test]
    fn a_machine_of_others_is_left_alone() {
        let mut configuration = Configuration::new(false, Duration::ZERO);
        assert_eq!(configuration.set_clock(&SetClock { wall_ns: 0 }).unwrap_err().code, Code::Permission);
        assert_eq!(configuration.reseed(&Reseed { entropy: vec![0; 64] }).unwrap_err().code, Code::Permission);
    }
}
