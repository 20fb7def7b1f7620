//! `cargo xtask bench guest`: what a program feels inside of a Hutch sandbox, inside of gVisor and in a plain folder of
//! this machine, on the same root file system.
//!
//! Every measure is taken by a program in the place itself (`guest/probe.c`), so that no time of the way there counts.
//! The places take turns, sample by sample; all samples are kept. Nothing here fails for being slow.

mod measures;
mod places;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use measures::Measure;
use places::Place;

/// What is measured, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// How often each measure is taken in each place; those that take long are taken less often.
    #[arg(long, default_value_t = 15)]
    runs: u32,
    /// Only these measures, by the names in the table.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these places: hutch, gvisor, native.
    #[arg(long, value_delimiter = ',')]
    places: Vec<String>,
    /// Where to write the samples; `target/bench/guest-<time>.jsonl` when absent.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the table of samples that were taken before, and take none.
    #[arg(long, conflicts_with_all = ["runs", "only", "places", "out"])]
    read: Option<PathBuf>,
}

/// One number that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sample {
    measure: String,
    place: String,
    run: u32,
    value: f64,
}

pub(super) fn run(options: &Options) -> Result<()> {
    if let Some(path) = &options.read {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        println!("{}", table::of_file(&text)?);
        return Ok(());
    }
    let measures = measures::selected(&options.only)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace's folder")?;
    let folder = root.join("target/bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;

    let mut places = places::open(root, &folder, &options.places)?;
    let versions: Vec<_> = places.iter().map(|place| (place.name().to_owned(), place.version())).collect();
    let machine = super::machine::describe(&versions);
    for place in &mut places {
        eprintln!("preparing {}", place.name());
        prepare(place.as_mut()).with_context(|| format!("prepare {}", place.name()))?;
    }
    let mut text = serde_json::to_string(&machine).context("write the machine's description")? + "\n";
    for measure in &measures {
        for sample in take(measure, options.runs, &mut places)? {
            text += &(serde_json::to_string(&sample).context("write a sample")? + "\n");
        }
    }
    for place in &mut places {
        place.end()?;
    }
    let out = options.out.clone().unwrap_or_else(|| folder.join(format!("guest-{}.jsonl", machine.taken_at)));
    std::fs::write(&out, &text).with_context(|| format!("write {}", out.display()))?;
    println!("{}", table::of_file(&text)?);
    eprintln!("samples: {}", out.display());
    Ok(())
}

/// Makes the folder that the measures work in.
fn prepare(place: &mut dyn Place) -> Result<()> {
    let (probe, script) = (include_str!("guest/probe.c"), include_str!("guest/prepare.sh"));
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    place.run(&format!(
        "rm -rf /root/bench && mkdir -p /root/bench && cd /root/bench && printf %s {} | sh -c {}",
        quoted(probe),
        quoted(script)
    ))?;
    Ok(())
}

/// Takes samples of one measure, in turns. The first round warms caches and does not count.
fn take(measure: &Measure, runs: u32, places: &mut [Box<dyn Place>]) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let rounds = measure.rounds(runs);
    for round in 0..=rounds {
        eprint!("\r{:<18}{round}/{rounds} ", measure.name);
        for place in places.iter_mut() {
            let name = place.name();
            let said = place.run(&measure.script()).with_context(|| format!("{} in {name}", measure.name))?;
            let value = said.trim().parse();
            let value = value.with_context(|| format!("{} in {name} said {said:?}, no number", measure.name))?;
            if round > 0 {
                let (measure, place) = (measure.name.to_owned(), name.to_owned());
                samples.push(Sample { measure, place, run: round, value });
            }
        }
    }
    eprintln!();
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use anyhow::Result;

    use super::places::Place;
    use super::{measures, take};

    /// Writes down that it was asked.
    struct Scribe(&'static str, Rc<RefCell<String>>);

    impl Place for Scribe {
        fn name(&self) -> &'static str {
            self.0
        }
        fn version(&self) -> String {
            String::new()
        }
        fn run(&mut self, _: &str) -> Result<String> {
            self.1.borrow_mut().push_str(self.0);
            Ok("1.5\n".to_owned())
        }
        fn end(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn places_take_turns_and_the_first_round_does_not_count() {
        let log = Rc::default();
        let mut places: Vec<Box<dyn Place>> =
            vec![Box::new(Scribe("a", Rc::clone(&log))), Box::new(Scribe("b", Rc::clone(&log)))];
        let measure = measures::selected(&["fork".to_owned()]).unwrap().remove(0);
        let samples = take(&measure, 2, &mut places).unwrap();
        assert_eq!(*log.borrow(), "ababab");
        let taken: Vec<_> = samples.iter().map(|sample| (sample.place.as_str(), sample.run, sample.value)).collect();
        assert_eq!(taken, [("a", 1, 1.5), ("b", 1, 1.5), ("a", 2, 1.5), ("b", 2, 1.5)]);
    }
}
