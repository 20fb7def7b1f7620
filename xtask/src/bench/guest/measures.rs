//! What is measured inside of a place.

use anyhow::{Result, bail};

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Less is better.
    Microseconds,
    /// Less is better.
    Milliseconds,
    /// MiB in a second: more is better.
    Throughput,
}

impl Unit {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Throughput => "MiB/s",
        }
    }

    pub(super) fn more_is_better(self) -> bool {
        self == Self::Throughput
    }
}

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// What is done before each sample and does not count.
    before: &'static str,
    /// The arguments of the probe; its name is the measure's own when there are none.
    arguments: &'static str,
    /// One sample for this many runs.
    every: u32,
}

const fn own(name: &'static str, unit: Unit) -> Measure {
    Measure { name, unit, before: ":", arguments: "", every: 1 }
}

const fn command(name: &'static str, arguments: &'static str) -> Measure {
    Measure { name, unit: Unit::Milliseconds, before: ":", arguments, every: 1 }
}

const MEASURES: [Measure; 17] = [
    command("python-start", "command python3 -c pass"),
    command(
        "python-import",
        "command python3 -c 'import asyncio, email.message, http.client, json, sqlite3, urllib.request'",
    ),
    Measure {
        before: "rm -rf site",
        every: 3,
        ..command(
            "pip-install",
            "command python3 -m pip install --quiet --no-index --no-deps --no-cache-dir --disable-pip-version-check \
             --target site sample-1.0-py3-none-any.whl",
        )
    },
    command("gcc", "command gcc -O1 -c -o probe.o probe.c"),
    Measure {
        before: "rm -rf cache",
        every: 15,
        ..command("go-build", "command env GOCACHE=/root/bench/cache GOFLAGS=-p=1 go build -o hello hello.go")
    },
    command("node-start", "command node -e 0"),
    command("find", "command find /usr -xdev"),
    own("fork", Unit::Microseconds),
    own("fork-exec", Unit::Microseconds),
    own("page-fault", Unit::Microseconds),
    own("page-fault-random", Unit::Microseconds),
    own("page-fault-copy", Unit::Microseconds),
    own("file-create", Unit::Microseconds),
    own("file-write", Unit::Throughput),
    own("file-read", Unit::Throughput),
    own("loopback", Unit::Throughput),
    own("system-call", Unit::Microseconds),
];

impl Measure {
    /// What prints one number in a place.
    pub(super) fn script(&self) -> String {
        let arguments = if self.arguments.is_empty() { self.name } else { self.arguments };
        format!("cd /root/bench && {} && ./probe {arguments}", self.before)
    }

    /// How many samples are taken.
    pub(super) fn rounds(&self, runs: u32) -> u32 {
        runs.div_ceil(self.every)
    }
}

/// The measures of these names, all of them when there are none.
pub(super) fn selected(names: &[String]) -> Result<Vec<Measure>> {
    if let Some(unknown) = names.iter().find(|name| named(name).is_none()) {
        let known: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
        bail!("there is no measure {unknown:?}; choices: {}", known.join(" "));
    }
    let chosen = MEASURES.into_iter().filter(|measure| names.is_empty() || names.iter().any(|n| n == measure.name));
    Ok(chosen.collect())
}

/// The measure of this name.
pub(super) fn named(name: &str) -> Option<Measure> {
    MEASURES.into_iter().find(|measure| measure.name == name)
}

#[cfg(test)]
mod tests {
    use super::{MEASURES, named, selected};

    #[test]
    fn measures_are_chosen_by_name() {
        assert_eq!(selected(&[]).unwrap().len(), MEASURES.len());
        assert_eq!(selected(&["fork".to_owned()]).unwrap(), [named("fork").unwrap()]);
        assert!(selected(&["speed".to_owned()]).unwrap_err().to_string().contains("choices: python-start"));
    }

    #[test]
    fn what_takes_long_is_taken_less_often() {
        assert_eq!(named("go-build").unwrap().rounds(15), 1);
        assert_eq!(named("go-build").unwrap().rounds(16), 2);
        assert_eq!(named("fork").unwrap().rounds(15), 15);
    }

    #[test]
    fn the_probe_knows_each_measure() {
        let probe = include_str!("probe.c");
        for measure in MEASURES.iter().filter(|measure| measure.arguments.is_empty()) {
            assert!(probe.contains(&format!("{{ \"{}\",", measure.name)), "{}", measure.name);
        }
    }
}
