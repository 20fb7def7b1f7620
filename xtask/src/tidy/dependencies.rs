//! What the manifests say: lints are inherited, every outside crate has a reason and an accepted licence.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Finding;
use super::tree::Tree;

const POLICY: &str = "deny.toml";

/// What `cargo metadata` tells, reduced to what the rules ask.
#[derive(Debug, Deserialize)]
pub(super) struct Packages {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    license: Option<String>,
    license_file: Option<String>,
    source: Option<String>,
    dependencies: Vec<Declared>,
}

#[derive(Debug, Deserialize)]
struct Declared {
    name: String,
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Debug, Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Packages {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(root)
            .args(["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
            .output()
            .context("start cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("read what cargo metadata printed")
    }

    /// For each crate of the house, the crates of the house that it uses (outside of its tests).
    pub(super) fn arrows(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut arrows = BTreeMap::new();
        for package in self.members() {
            let Some(from) = package.name.strip_prefix("hutch-") else { continue };
            let to = package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
            let to = to.filter_map(|dependency| dependency.name.strip_prefix("hutch-")).map(str::to_owned);
            arrows.insert(from.to_owned(), to.collect());
        }
        arrows
    }

    pub(super) fn is_member(&self, krate: &str) -> bool {
        self.members().any(|package| package.name.strip_prefix("hutch-") == Some(krate))
    }

    /// Everything that a crate of the house pulls in, each with one way it gets there.
    pub(super) fn below(&self, krate: &str) -> BTreeMap<String, String> {
        let names: BTreeMap<&str, &str> =
            self.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let Some(start) = self.members().find(|package| package.name.strip_prefix("hutch-") == Some(krate)) else {
            return BTreeMap::new();
        };
        let mut found = BTreeMap::new();
        let mut queue = VecDeque::from([(start.id.as_str(), krate.to_owned())]);
        while let Some((id, chain)) = queue.pop_front() {
            for dependency in nodes.get(id).map_or(&[][..], |node| &node.deps) {
                let shipped = dependency.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
                let name = names.get(dependency.pkg.as_str()).copied().unwrap_or_default();
                if shipped && !found.contains_key(name) {
                    let chain = format!("{chain} -> {name}");
                    found.insert(name.to_owned(), chain.clone());
                    queue.push_back((&dependency.pkg, chain));
                }
            }
        }
        found
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

pub(super) fn check(tree: &Tree, packages: &Packages) -> Vec<Finding> {
    let mut findings = lints(tree);
    let Some(policy) = tree.text(POLICY) else {
        findings.push(Finding::error("dependencies", POLICY, "is missing: it gives the reason of each outside crate"));
        return findings;
    };
    let direct: BTreeSet<&str> = packages
        .members()
        .flat_map(|package| &package.dependencies)
        .map(|dependency| dependency.name.as_str())
        .filter(|name| !name.starts_with("hutch-"))
        .collect();
    findings.extend(reasons(policy, &direct));
    let accepted = quoted_list(policy, "allow");
    for package in packages.packages.iter().filter(|package| package.source.is_some()) {
        findings.extend(licence(&package.name, package.license.as_deref(), package.license_file.is_some(), &accepted));
    }
    findings
}

/// Every member takes the workspace's lints.
fn lints(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.texts().filter(|(path, _)| path.ends_with("/Cargo.toml"));
    manifests
        .filter(|(_, text)| !text.replace(' ', "").contains("[lints]\nworkspace=true"))
        .map(|(path, _)| Finding::error("lints", path, "must say `[lints] workspace = true`"))
        .collect()
}

/// `# name: why it is here` in the policy, for each crate that a manifest names.
fn reasons(policy: &str, direct: &BTreeSet<&str>) -> Vec<Finding> {
    let given: BTreeSet<&str> = policy
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, reason)| !name.contains(' ') && reason.len() > 10)
        .map(|(name, _)| name)
        .collect();
    let missing = direct.difference(&given).map(|name| {
        Finding::error("dependencies", POLICY, format!("gives no reason for `{name}`: add `# {name}: why it is here`"))
    });
    let stale = given.difference(direct).map(|name| {
        Finding::warning("dependencies", POLICY, format!("gives a reason for `{name}`, which no manifest names"))
    });
    missing.chain(stale).collect()
}

/// The strings of the first list called `key`.
fn quoted_list(policy: &str, key: &str) -> BTreeSet<String> {
    let Some((_, rest)) = policy.split_once(&format!("\n{key} = [")) else { return BTreeSet::new() };
    let list = rest.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn licence(name: &str, expression: Option<&str>, has_file: bool, accepted: &BTreeSet<String>) -> Option<Finding> {
    match expression {
        Some(expression) if is_accepted(expression, accepted) => None,
        Some(expression) => {
            let text = format!("`{name}` is under {expression}, which {POLICY} does not accept");
            Some(Finding::error("licences", POLICY, text))
        }
        None if has_file => Some(Finding::warning("licences", POLICY, format!("`{name}` has a licence of its own"))),
        None => Some(Finding::error("licences", POLICY, format!("`{name}` names no licence"))),
    }
}

/// An `AND` needs all of its parts, an `OR` (or the old `/`) one of them; `AND` binds tighter.
fn is_accepted(expression: &str, accepted: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    if let Some((before, rest)) = expression.split_once('(')
        && let Some((inner, after)) = rest.split_once(')')
    {
        let known = accepted.iter().next().cloned().unwrap_or_default();
        let value = if is_accepted(inner, accepted) { known } else { "none".to_owned() };
        return is_accepted(&format!("{before}{value}{after}"), accepted);
    }
    expression.split(" OR ").any(|choice| choice.split(" AND ").all(|part| accepted.contains(part.trim())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tree::Tree;
    use super::{Packages, is_accepted, lints, quoted_list, reasons};

    #[test]
    fn a_manifest_without_the_lints_is_found() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n"),
            ("crates/b/Cargo.toml", "[package]\n"),
        ]);
        let findings = lints(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, "crates/b/Cargo.toml");
    }

    #[test]
    fn a_crate_without_a_reason_is_found() {
        let policy = "# serde: reads and writes JSON\n";
        assert!(reasons(policy, &BTreeSet::from(["serde"])).is_empty());
        assert_eq!(reasons(policy, &BTreeSet::from(["serde", "left-pad"])).len(), 1);
    }

    #[test]
    fn licences_are_judged_by_their_expression() {
        let accepted = quoted_list("[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0\",\n]\n", "allow");
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Apache-2.0", true),
            ("(GPL-2.0 OR GPL-3.0) AND MIT", false),
            ("GPL-3.0", false),
        ] {
            assert_eq!(is_accepted(expression, &accepted), expected, "{expression}");
        }
    }

    /// A dependency of tests alone is no arrow and does not count as below.
    #[test]
    fn what_a_crate_pulls_in_is_followed_through_others() {
        let packages: Packages = serde_json::from_value(serde_json::json!({
            "packages": [
                {"id": "a", "name": "hutch-agent", "license": null, "license_file": null, "source": null, "dependencies": [
                    {"name": "hutch-protocol", "kind": null}, {"name": "hutch-api", "kind": "dev"}]},
                {"id": "p", "name": "hutch-protocol", "license": null, "license_file": null, "source": null, "dependencies": []},
                {"id": "t", "name": "tokio", "license": "MIT", "license_file": null, "source": "registry", "dependencies": []},
                {"id": "c", "name": "criterion", "license": "MIT", "license_file": null, "source": "registry", "dependencies": []},
            ],
            "workspace_members": ["a", "p"],
            "resolve": {"nodes": [
                {"id": "a", "deps": [{"pkg": "p", "dep_kinds": [{"kind": null}]}, {"pkg": "c", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "p", "deps": [{"pkg": "t", "dep_kinds": [{"kind": null}]}]},
            ]},
        }))
        .expect("it has the form of cargo's own");
        assert_eq!(packages.arrows()["agent"], BTreeSet::from(["protocol".to_owned()]));
        let below = packages.below("agent");
        assert_eq!(below["tokio"], "agent -> hutch-protocol -> tokio");
        assert!(!below.contains_key("criterion"));
    }
}
