//! What is measured, and who takes part.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    action: Action,
    /// Samples for each run that was asked for: short actions are taken more often.
    times: u32,
}

/// What a sample counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Unit {
    /// Milliseconds: less is better.
    #[serde(rename = "ms")]
    Milliseconds,
    /// MiB in a second: more is better.
    #[serde(rename = "MiB/s")]
    Throughput,
    /// MiB of memory: less is better.
    #[serde(rename = "MiB")]
    Mebibytes,
}

impl Unit {
    /// Whether less of it is better.
    pub(super) fn is_cost(self) -> bool {
        self != Self::Throughput
    }

    /// The word for it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Throughput => "MiB/s",
            Self::Mebibytes => "MiB",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Create,
    Execute(&'static [&'static str]),
    Upload(u64),
    Download(u64),
}

const MEASURES: [Measure; 7] = [
    Measure { name: "create", unit: Unit::Milliseconds, action: Action::Create, times: 1 },
    Measure { name: "exec", unit: Unit::Milliseconds, action: Action::Execute(&["/bin/true"]), times: 5 },
    Measure {
        name: "python",
        unit: Unit::Milliseconds,
        action: Action::Execute(&["/usr/bin/python3", "-c", "pass"]),
        times: 1,
    },
    Measure { name: "upload-64", unit: Unit::Throughput, action: Action::Upload(64 * MIB), times: 1 },
    Measure { name: "download-64", unit: Unit::Throughput, action: Action::Download(64 * MIB), times: 1 },
    Measure { name: "upload-256", unit: Unit::Throughput, action: Action::Upload(256 * MIB), times: 1 },
    Measure { name: "download-256", unit: Unit::Throughput, action: Action::Download(256 * MIB), times: 1 },
];

/// The measures of these names, all of them when there are none.
pub(super) fn selected(names: &[String]) -> Result<Vec<Measure>> {
    if let Some(unknown) = names.iter().find(|name| MEASURES.iter().all(|measure| measure.name != name.as_str())) {
        let known: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
        bail!("there is no measure {unknown:?}; choices: {}", known.join(" "));
    }
    let chosen =
        MEASURES.into_iter().filter(|measure| names.is_empty() || names.iter().any(|name| name == measure.name));
    Ok(chosen.collect())
}

/// One number that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) measure: String,
    pub(super) contestant: String,
    pub(super) run: u32,
    pub(super) value: f64,
    pub(super) unit: Unit,
}

/// A way to run untrusted code. Each method does its work once and returns when the result is there.
pub(super) trait Contestant {
    /// The names it goes by, one for each way that it offers to reach a running sandbox.
    fn ways(&self) -> Vec<&'static str>;
    /// Makes a new sandbox and runs `/bin/true` in it.
    fn create_and_execute(&mut self) -> Result<()>;
    /// Removes the sandbox that was made last by `create_and_execute`. Not measured.
    fn remove(&mut self) -> Result<()>;
    /// Runs a command in the standing sandbox, by one of the ways.
    fn execute(&mut self, way: &'static str, command: &[&str]) -> Result<()>;
    /// Sends a file of this many bytes into the standing sandbox.
    fn upload(&mut self, bytes: u64) -> Result<()>;
    /// Fetches that file again.
    fn download(&mut self, bytes: u64) -> Result<()>;
    /// Takes everything away.
    fn end(&mut self) -> Result<()>;
}

/// Takes samples of one measure, in turns.
pub(super) fn take(measure: Measure, runs: u32, contestants: &mut [Box<dyn Contestant>]) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let rounds = runs * measure.times;
    // The first round warms caches and connections and does not count.
    for round in 0..=rounds {
        eprint!("\r{:<14}{round}/{rounds} ", measure.name);
        for contestant in contestants.iter_mut() {
            for way in contestant.ways() {
                let Some(value) =
                    sample(measure, contestant.as_mut(), way).with_context(|| format!("{} of {way}", measure.name))?
                else {
                    continue;
                };
                if round > 0 {
                    let (measure_name, way) = (measure.name.to_owned(), way.to_owned());
                    let unit = measure.unit;
                    samples.push(Sample { measure: measure_name, contestant: way, run: round, value, unit });
                }
            }
        }
    }
    eprintln!();
    Ok(samples)
}

/// One value; `None` when this way makes no difference to the measure and another was taken already.
fn sample(measure: Measure, contestant: &mut dyn Contestant, way: &'static str) -> Result<Option<f64>> {
    let first = contestant.ways().first() == Some(&way);
    if !first && !matches!(measure.action, Action::Execute(_)) {
        return Ok(None);
    }
    let began = Instant::now();
    let bytes = match measure.action {
        Action::Create => {
            contestant.create_and_execute()?;
            0
        }
        Action::Execute(command) => {
            contestant.execute(way, command)?;
            0
        }
        Action::Upload(bytes) => {
            contestant.upload(bytes)?;
            bytes
        }
        Action::Download(bytes) => {
            contestant.download(bytes)?;
            bytes
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    if measure.action == Action::Create {
        contestant.remove()?;
    }
    Ok(Some(match measure.unit {
        Unit::Milliseconds | Unit::Mebibytes => seconds * 1000.0,
        #[expect(clippy::cast_precision_loss, reason = "a few hundred MiB are far below 2^53 bytes")]
        Unit::Throughput => bytes as f64 / seconds / MIB as f64,
    }))
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::{Contestant, MEASURES, selected, take};

    /// Writes down what it is asked for.
    struct Scribe(std::rc::Rc<std::cell::RefCell<Vec<String>>>, Vec<&'static str>);

    impl Contestant for Scribe {
        fn ways(&self) -> Vec<&'static str> {
            self.1.clone()
        }
        fn create_and_execute(&mut self) -> Result<()> {
            self.0.borrow_mut().push(format!("{} create", self.1[0]));
            Ok(())
        }
        fn remove(&mut self) -> Result<()> {
            Ok(())
        }
        fn execute(&mut self, way: &'static str, _: &[&str]) -> Result<()> {
            self.0.borrow_mut().push(format!("{way} exec"));
            Ok(())
        }
        fn upload(&mut self, _: u64) -> Result<()> {
            Ok(())
        }
        fn download(&mut self, _: u64) -> Result<()> {
            Ok(())
        }
        fn end(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn contestants_take_turns_and_the_first_round_does_not_count() {
        let log = std::rc::Rc::default();
        let scribe = |ways| Box::new(Scribe(std::rc::Rc::clone(&log), ways)) as Box<dyn Contestant>;
        let mut both = vec![scribe(vec!["a"]), scribe(vec!["b", "b2"])];
        let samples = take(MEASURES[0], 2, &mut both).unwrap();
        assert_eq!(*log.borrow(), ["a create", "b create"].repeat(3));
        let taken: Vec<(&str, u32)> = samples.iter().map(|sample| (sample.contestant.as_str(), sample.run)).collect();
        assert_eq!(taken, [("a", 1), ("b", 1), ("a", 2), ("b", 2)]);
        log.borrow_mut().clear();
        take(MEASURES[1], 1, &mut both).unwrap();
        assert_eq!(log.borrow()[..3], ["a exec", "b exec", "b2 exec"]);
    }

    #[test]
    fn measures_are_chosen_by_name() {
        assert_eq!(selected(&[]).unwrap().len(), MEASURES.len());
        assert_eq!(selected(&["exec".to_owned()]).unwrap().len(), 1);
        assert!(selected(&["speed".to_owned()]).unwrap_err().to_string().contains("choices: create"));
    }
}
