//! Which crate may use which: the table of ARCHITECTURE.md against the manifests.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::dependencies::Packages;
use super::tree::Tree;

const RULE: &str = "arrows";
const TABLE: &str = "ARCHITECTURE.md";

/// Crates without a runtime, HTTP or TLS anywhere below them (invariant 1), as far as they exist.
const QUIET: [&str; 8] = ["units", "protocol", "snapshot", "devices", "vmm", "isolate", "agent", "jail"];

/// What a quiet crate must not have below it.
const LOUD: [&str; 16] = [
    "async-std",
    "axum",
    "h2",
    "http",
    "hyper",
    "hyper-util",
    "mio",
    "native-tls",
    "openssl",
    "reqwest",
    "ring",
    "rustls",
    "smol",
    "tokio",
    "tonic",
    "ureq",
];

pub(super) fn check(tree: &Tree, packages: &Packages) -> Vec<Finding> {
    let Some(text) = tree.text(TABLE) else {
        return vec![Finding::error(RULE, TABLE, "is missing: it says which crate may use which")];
    };
    let table = parse(text);
    let mut findings = check_arrows(&table, &packages.arrows());
    for krate in QUIET.iter().filter(|krate| packages.is_member(krate)) {
        for (name, chain) in packages.below(krate) {
            if LOUD.contains(&name.as_str()) {
                let text = format!("`{krate}` must have no runtime, HTTP or TLS below it, but has {chain}");
                findings.push(Finding::error("quiet-crates", format!("crates/{krate}/Cargo.toml"), text));
            }
        }
    }
    findings
}

/// The table's rows: a crate and the crates that it may use.
fn parse(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut table = BTreeMap::new();
    let mut inside = false;
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if cells.len() != 3 || !line.starts_with('|') {
            inside = false;
        } else if cells[0] == "crate" && cells[2] == "may use" {
            inside = true;
        } else if inside && let [name] = backticked(cells[0]).as_slice() {
            table.insert(name.clone(), backticked(cells[2]).into_iter().collect());
        }
    }
    table
}

fn backticked(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn check_arrows(
    table: &BTreeMap<String, BTreeSet<String>>,
    arrows: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (from, targets) in arrows {
        let manifest = format!("crates/{from}/Cargo.toml");
        let Some(allowed) = table.get(from) else {
            findings.push(Finding::error(RULE, manifest, format!("`{from}` has no row in the table of {TABLE}")));
            continue;
        };
        for to in targets.difference(allowed) {
            let text = format!("{from} -> {to} is not in the table of {TABLE}; a new arrow needs a row and an ADR");
            findings.push(Finding::error(RULE, manifest.clone(), text));
        }
    }
    for name in table.keys().filter(|name| !arrows.contains_key(*name)) {
        findings.push(Finding::error(RULE, TABLE, format!("`{name}` is in the table but not in the workspace")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{check_arrows, parse};

    const TEXT: &str = "| crate | what it is | may use |\n|---|---|---|\n| `units` | words | nothing of ours |\n\
        | `agent` | init (see `jail`) | `protocol` `units` |\n\n| other | table | here |\n| `x` | y | `z` |\n";

    fn map(arrows: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        arrows.iter().map(|(from, to)| ((*from).to_owned(), set(to))).collect()
    }

    #[test]
    fn the_table_is_read() {
        assert_eq!(parse(TEXT), map(&[("units", &[]), ("agent", &["protocol", "units"])]));
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_found() {
        let allowed = map(&[("units", &[]), ("agent", &["units"])]);
        assert!(check_arrows(&allowed, &map(&[("units", &[]), ("agent", &["units"])])).is_empty());
        let findings = check_arrows(&allowed, &map(&[("units", &["agent"]), ("agent", &["units"])]));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains("units -> agent"), "{}", findings[0]);
    }

    #[test]
    fn a_crate_without_a_row_and_a_row_without_a_crate_are_found() {
        assert_eq!(check_arrows(&map(&[]), &map(&[("agent", &[])])).len(), 1);
        assert_eq!(check_arrows(&map(&[("agent", &[])]), &map(&[])).len(), 1);
    }
}
