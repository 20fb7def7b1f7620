//! Links in documents lead somewhere, every decision is listed, every persisted form has its golden file.

use std::collections::BTreeSet;

use super::Finding;
use super::rust_text::RustText;
use super::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = links(tree);
    findings.extend(decisions(tree));
    findings.extend(golden_files(tree));
    findings
}

fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in targets(text) {
            if let Some(problem) = broken(tree, path, &target) {
                findings.push(Finding::error("links", format!("{path}:{line}"), problem));
            }
        }
    }
    findings
}

/// The targets of inline links outside of code, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for (_, rest) in prose.match_indices("](").map(|(at, _)| prose.split_at(at + 2)) {
            if let Some((target, _)) = rest.split_once(')') {
                found.push((number + 1, target.to_owned()));
            }
        }
    }
    found
}

fn broken(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { from.to_owned() } else { join(from, file) };
    if !tree.contains(&path) {
        return Some(format!("links to {target}, which is not there"));
    }
    let anchor = anchor?;
    let headings: BTreeSet<String> = tree.text(&path)?.lines().filter_map(heading).collect();
    (!headings.contains(anchor)).then(|| format!("links to {target}, but {path} has no such heading"))
}

/// `file` as seen from the folder of `from`, with `.` and `..` resolved.
fn join(from: &str, file: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor of a heading line.
fn heading(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    let kept = title
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    Some(kept.trim().replace(' ', "-"))
}

/// Each decision record is linked from the architecture.
fn decisions(tree: &Tree) -> Vec<Finding> {
    let architecture = tree.text(ARCHITECTURE).unwrap_or_default();
    let linked: BTreeSet<String> = targets(architecture).into_iter().map(|(_, target)| target).collect();
    tree.paths()
        .filter(|path| path.starts_with("docs/adr/") && path.ends_with(".md") && !path.ends_with("/README.md"))
        .filter(|path| !linked.contains(*path))
        .map(|path| Finding::error("decisions", path, format!("is not linked from {ARCHITECTURE}")))
        .collect()
}

/// A crate that gives a form of its own a magic keeps a golden file of that form.
fn golden_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| path.starts_with("crates/")) {
        let parsed = RustText::parse(path, text);
        let magic = parsed.code_lines().find(|(_, code)| defines_magic(code));
        let Some((line, _)) = magic else { continue };
        let krate: String = path.split('/').take(2).collect::<Vec<_>>().join("/");
        let golden = tree.paths().any(|file| file.starts_with(&format!("{krate}/")) && file.contains("golden"));
        if !golden {
            let text = format!("defines the magic of a form, but {krate} keeps no golden file of it");
            findings.push(Finding::error("golden", format!("{path}:{line}"), text));
        }
    }
    findings
}

fn defines_magic(code: &str) -> bool {
    let Some((_, rest)) = code.split_once("const ") else { return false };
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    name == "MAGIC" || name.ends_with("_MAGIC")
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::{Finding, check};

    #[track_caller]
    fn rules(files: &[(&str, &str)], expected: &[&str]) {
        let findings: Vec<Finding> = check(&Tree::of(files));
        let found: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
        assert_eq!(found, expected, "{findings:?}");
    }

    #[test]
    fn a_link_must_lead_somewhere() {
        rules(&[("README.md", "[a](docs/a.md) [b](docs)"), ("docs/a.md", "[up](../README.md)")], &[]);
        rules(&[("README.md", "[a](docs/a.md)")], &["links"]);
        rules(&[("docs/a.md", "[a](../b.md)")], &["links"]);
        rules(&[("README.md", "`[a](nowhere)`\n```\n[b](nowhere)\n```\n[c](https://example.com)")], &[]);
    }

    #[test]
    fn an_anchor_must_be_a_heading() {
        rules(&[("README.md", "# Try `it`, now\n[a](#try-it-now)")], &[]);
        rules(&[("README.md", "# Try it\n[a](#tried-it)")], &["links"]);
    }

    #[test]
    fn a_decision_must_be_listed() {
        rules(&[("ARCHITECTURE.md", "[1](docs/adr/0001-a.md)"), ("docs/adr/0001-a.md", "")], &[]);
        rules(&[("ARCHITECTURE.md", ""), ("docs/adr/0001-a.md", "")], &["decisions"]);
    }

    #[test]
    fn a_form_with_a_magic_needs_a_golden_file() {
        let source = ("crates/protocol/src/frame.rs", "const FRAME_MAGIC: [u8; 4] = *b\"HTCH\";\n");
        rules(&[source], &["golden"]);
        rules(&[source, ("crates/protocol/tests/golden/hello.hex", "")], &[]);
    }
}
