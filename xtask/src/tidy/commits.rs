//! Commit subjects: `area: Imperative summary`, at most 72 characters.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Finding;

/// How many of the last commits are read.
const COMMITS: &str = "100";
const SUBJECT_LENGTH: usize = 72;

/// Imperatives that end as other forms do.
const IMPERATIVES: [&str; 12] =
    ["Bring", "Embed", "Exceed", "Feed", "Need", "Ping", "Proceed", "Seed", "Shed", "Speed", "Spring", "Succeed"];

/// A commit's short hash and its subject.
#[derive(Debug)]
pub(super) struct Commit {
    hash: String,
    subject: String,
}

/// The last commits that are not merges.
pub(super) fn read(root: &Path) -> Result<Vec<Commit>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["log", "--no-merges", "-n", COMMITS, "--format=%h %s"])
        .output()
        .context("start git log")?;
    if !output.status.success() {
        bail!("git log: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let commits = text.lines().filter_map(|line| line.split_once(' '));
    Ok(commits.map(|(hash, subject)| Commit { hash: hash.to_owned(), subject: subject.to_owned() }).collect())
}

pub(super) fn check(commits: &[Commit]) -> Vec<Finding> {
    commits
        .iter()
        .filter_map(|commit| {
            let problem = problem(&commit.subject)?;
            let place = format!("commit {}", commit.hash);
            Some(Finding::error("commits", place, format!("`{}`: {problem}", commit.subject)))
        })
        .collect()
}

fn problem(subject: &str) -> Option<&'static str> {
    let Some((area, summary)) = subject.split_once(": ") else { return Some("begin with `area: `") };
    let area_fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '/' | '.' | ',');
    if area.is_empty() || !area.chars().all(area_fits) {
        return Some("the area is a plain lower-case word");
    }
    if subject.chars().count() > SUBJECT_LENGTH {
        return Some("is longer than 72 characters");
    }
    if summary.ends_with('.') {
        return Some("ends with a full stop");
    }
    let verb = summary.split(' ').next().unwrap_or_default();
    if !verb.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Some("the summary begins with a capital letter");
    }
    if !IMPERATIVES.contains(&verb) && (verb.ends_with("ed") || verb.ends_with("ing")) {
        return Some("the summary is an imperative: Add, not Added or Adding");
    }
    if verb == "Fixup" || summary.to_lowercase().contains("fix previous") {
        return Some("belongs into the commit that it repairs");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn subjects_are_judged() {
        for good in ["jail: Keep the uid map out of the guest", "docs/adr: Feed the cat", "ci: Bring back the cache"] {
            assert_eq!(problem(good), None, "{good}");
        }
        let long = format!("jail: {}", "A".repeat(80));
        for bad in [
            "Keep the uid map",
            "jail: keep the uid map",
            "jail: Kept.",
            "jail: Added a map",
            "jail: Adding a map",
            "Jail: Add a map",
            "jail: Fix previous commit",
            long.as_str(),
        ] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }
}
