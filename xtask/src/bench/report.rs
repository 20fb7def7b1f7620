//! Samples as a table, and back from the file that keeps them.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::contest::{Sample, Unit};
use super::machine::Machine;
use super::statistics::{median, quantile, ratio};

/// The contestant that the others are held against.
const OURS: &str = "hutch";

/// A whole run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) machine: Machine,
    pub(super) samples: Vec<Sample>,
}

/// Reads a file of samples.
pub(super) fn parse(text: &str) -> Result<Run> {
    let mut lines = text.lines();
    let machine = serde_json::from_str(lines.next().unwrap_or_default()).context("the first line is the machine")?;
    let samples = lines.map(|line| serde_json::from_str(line).with_context(|| format!("read {line:?}")));
    Ok(Run { machine, samples: samples.collect::<Result<_>>()? })
}

/// A Markdown table: each measure, each contestant, and how many times as good Hutch is.
pub(super) fn table(run: &Run) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "{}, {} processors, {} MiB, {}, {}, load {}\n",
        machine.processor, machine.processors, machine.memory_mib, machine.system, machine.kernel, machine.load
    );
    for (name, version) in &machine.contestants {
        let _ = writeln!(text, "{name}: {version}");
    }
    text.push_str(
        "\n| measure | contestant | n | median | p90 | Hutch is better by (95 %) |\n|---|---|---|---|---|---|\n",
    );
    for measure in distinct(run.samples.iter().map(|sample| sample.measure.as_str())) {
        let of_measure: Vec<&Sample> = run.samples.iter().filter(|sample| sample.measure == measure).collect();
        let values = |contestant: &str| -> Vec<f64> {
            of_measure.iter().filter(|sample| sample.contestant == contestant).map(|sample| sample.value).collect()
        };
        for contestant in distinct(of_measure.iter().map(|sample| sample.contestant.as_str())) {
            let unit = of_measure[0].unit;
            let taken = values(contestant);
            let (Some(middle), Some(worse)) = (median(&taken), quantile(&taken, worse_end(unit))) else { continue };
            let compared = if contestant == OURS { String::new() } else { compare(unit, &values(OURS), &taken) };
            let word = unit.as_str();
            let _ = writeln!(
                text,
                "| {measure} | {contestant} | {} | {middle:.1} {word} | {worse:.1} {word} | {compared} |",
                taken.len()
            );
        }
    }
    text
}

/// The quantile that nine of ten samples are at least as good as.
fn worse_end(unit: Unit) -> f64 {
    if unit.is_cost() { 0.9 } else { 0.1 }
}

/// How many times as good ours is: above 1 it is better, below it is worse.
fn compare(unit: Unit, ours: &[f64], theirs: &[f64]) -> String {
    let compared = if unit.is_cost() { ratio(theirs, ours) } else { ratio(ours, theirs) };
    compared.map_or(String::new(), |ratio| format!("{:.2} ({:.2} to {:.2})", ratio.value, ratio.low, ratio.high))
}

/// Each word once, in the order of its first appearance.
fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for word in words {
        if !seen.contains(&word) {
            seen.push(word);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::{parse, table};

    const FILE: &str = r#"{"format":"hutch-bench","version":1,"taken_at":0,"processor":"P","processors":2,"memory_mib":1024,"kernel":"6.1","system":"Debian","load":"0 0 0","hardware_virtualization":false,"contestants":{"gvisor":"1","hutch":"2"}}
{"measure":"exec","contestant":"hutch","run":1,"value":5.0,"unit":"ms"}
{"measure":"exec","contestant":"gvisor","run":1,"value":50.0,"unit":"ms"}
{"measure":"upload-64","contestant":"hutch","run":1,"value":100.0,"unit":"MiB/s"}
{"measure":"upload-64","contestant":"gvisor","run":1,"value":200.0,"unit":"MiB/s"}
"#;

    #[test]
    fn what_was_kept_is_read_and_told() {
        let text = table(&parse(FILE).unwrap());
        assert!(
            text.starts_with("P, 2 processors, 1024 MiB, Debian, 6.1, load 0 0 0\ngvisor: 1\nhutch: 2\n"),
            "{text}"
        );
        assert!(text.contains("| exec | hutch | 1 | 5.0 ms | 5.0 ms |  |"), "{text}");
        assert!(text.contains("| exec | gvisor | 1 | 50.0 ms | 50.0 ms | 10.00 (10.00 to 10.00) |"), "{text}");
        assert!(
            text.contains("| upload-64 | gvisor | 1 | 200.0 MiB/s | 200.0 MiB/s | 0.50 (0.50 to 0.50) |"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_sample_is_told() {
        assert!(parse("").is_err());
        assert!(parse(&format!("{FILE}not json\n")).unwrap_err().to_string().contains("not json"));
    }
}
