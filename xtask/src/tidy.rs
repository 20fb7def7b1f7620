//! `cargo xtask tidy`: the rules of the project that a compiler does not know.
//!
//! Each rule is a pure function from what is in the tree to findings, so that its test shows a violation being caught
//! without touching the disk. Errors fail the run; warnings are printed and do not.

mod arrows;
mod commits;
mod dependencies;
mod documents;
mod rust_text;
mod source;
mod tree;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use tree::Tree;

/// How a finding ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Warning,
    Error,
}

/// One place that breaks one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    level: Level,
    rule: &'static str,
    /// `path` or `path:line`, or a commit.
    place: String,
    text: String,
}

impl Finding {
    fn error(rule: &'static str, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { level: Level::Error, rule, place: place.into(), text: text.into() }
    }

    fn warning(rule: &'static str, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { level: Level::Warning, rule, place: place.into(), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Warning => "warning",
            Level::Error => "error",
        };
        write!(out, "{level}: {}: [{}] {}", self.place, self.rule, self.text)
    }
}

/// Checks the tree that holds this workspace and prints what it finds.
pub(crate) fn run() -> Result<()> {
    let root = tree::root()?;
    let mut findings = check(&root)?;
    findings.sort();
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    for finding in &findings {
        eprintln!("{finding}");
    }
    let warnings = findings.len() - errors;
    eprintln!("tidy: {errors} errors, {warnings} warnings");
    if errors > 0 {
        bail!("the tree is not tidy");
    }
    Ok(())
}

fn check(root: &Path) -> Result<Vec<Finding>> {
    let tree = Tree::read(root)?;
    let packages = dependencies::Packages::read(root)?;
    let mut findings = Vec::new();
    findings.extend(arrows::check(&tree, &packages));
    findings.extend(dependencies::check(&tree, &packages));
    findings.extend(source::check(&tree));
    findings.extend(words::check(&tree, root));
    findings.extend(documents::check(&tree));
    findings.extend(commits::check(&commits::read(root)?));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::{Level, check, tree};

    /// The rules hold for the tree that they live in.
    #[test]
    fn this_tree_is_tidy() {
        let root = tree::root().expect("the workspace is above this crate");
        let findings = check(&root).expect("the tree can be read");
        let errors: Vec<String> =
            findings.iter().filter(|finding| finding.level == Level::Error).map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
}
