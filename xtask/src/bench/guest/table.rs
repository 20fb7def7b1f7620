//! Samples as a table: a row for each measure, a column for each place.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::Sample;
use super::measures::{self, Unit};
use crate::bench::machine::Machine;
use crate::bench::statistics::{median, quantile, ratio};

/// The table of a file of samples.
pub(super) fn of_file(text: &str) -> Result<String> {
    let mut lines = text.lines();
    let machine: Machine =
        serde_json::from_str(lines.next().unwrap_or_default()).context("the first line is the machine")?;
    let samples = lines.map(|line| serde_json::from_str(line).with_context(|| format!("read {line:?}")));
    let samples: Vec<Sample> = samples.collect::<Result<_>>()?;

    let mut table = format!(
        "{}, {} processors, {} MiB, {}, {}, load {}\n",
        machine.processor, machine.processors, machine.memory_mib, machine.system, machine.kernel, machine.load
    );
    for (name, version) in &machine.contestants {
        let _ = writeln!(table, "{name}: {version}");
    }
    table.push_str("\nMedian (p90). A ratio above 1 says that Hutch is better, with its 95 % interval.\n\n");
    table.push_str("| measure | unit | Hutch | gVisor | native | beside gVisor | beside native |\n");
    table.push_str("|---|---|---|---|---|---|---|\n");
    let mut names: Vec<&str> = samples.iter().map(|sample| sample.measure.as_str()).collect();
    names.dedup();
    for name in names {
        let unit = measures::named(name).with_context(|| format!("there is no measure {name:?}"))?.unit;
        let of = |place: &str| -> Vec<f64> {
            samples.iter().filter(|s| s.measure == name && s.place == place).map(|s| s.value).collect()
        };
        let (hutch, gvisor, native) = (of("hutch"), of("gvisor"), of("native"));
        let _ = writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            unit.word(),
            cell(unit, &hutch),
            cell(unit, &gvisor),
            cell(unit, &native),
            compare(unit, &hutch, &gvisor),
            compare(unit, &hutch, &native)
        );
    }
    Ok(table)
}

/// The middle, and what nine of ten samples are at least as good as.
fn cell(unit: Unit, values: &[f64]) -> String {
    let share = if unit.more_is_better() { 0.1 } else { 0.9 };
    match (median(values), quantile(values, share)) {
        (Some(middle), Some(worse)) => format!("{} ({})", number(middle), number(worse)),
        _ => String::new(),
    }
}

/// Three digits that say something.
fn number(value: f64) -> String {
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$}")
}

fn compare(unit: Unit, ours: &[f64], theirs: &[f64]) -> String {
    let compared = if unit.more_is_better() { ratio(ours, theirs) } else { ratio(theirs, ours) };
    compared.map_or(String::new(), |ratio| format!("{:.2} ({:.2} to {:.2})", ratio.value, ratio.low, ratio.high))
}

#[cfg(test)]
mod tests {
    use super::of_file;

    const FILE: &str = r#"{"format":"hutch-bench","version":1,"taken_at":0,"processor":"P","processors":2,"memory_mib":1024,"kernel":"6.1","system":"Debian","load":"0 0 0","hardware_virtualization":false,"contestants":{"gvisor":"1","hutch":"2"}}
{"measure":"fork","place":"hutch","run":1,"value":500.0}
{"measure":"fork","place":"gvisor","run":1,"value":2000.0}
{"measure":"fork","place":"native","run":1,"value":100.0}
{"measure":"loopback","place":"hutch","run":1,"value":1000.0}
{"measure":"loopback","place":"gvisor","run":1,"value":500.0}
"#;

    #[test]
    fn what_was_kept_is_read_and_told() {
        let table = of_file(FILE).unwrap();
        assert!(
            table.starts_with("P, 2 processors, 1024 MiB, Debian, 6.1, load 0 0 0\ngvisor: 1\nhutch: 2\n"),
            "{table}"
        );
        let fork = "| fork | us | 500 (500) | 2000 (2000) | 100 (100) | 4.00 (4.00 to 4.00) | 0.20 (0.20 to 0.20) |";
        assert!(table.contains(fork), "{table}");
        let loopback = "| loopback | MiB/s | 1000 (1000) | 500 (500) |  | 2.00 (2.00 to 2.00) |  |";
        assert!(table.contains(loopback), "{table}");
    }

    #[test]
    fn what_is_no_sample_is_told() {
        assert!(of_file("").is_err());
        assert!(of_file(&format!("{FILE}not json\n")).unwrap_err().to_string().contains("not json"));
    }
}
