//! What a check of the host found: the lines of `hutch doctor` and the reasons of readiness.

use serde::Serialize;

/// One prerequisite that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked for, in a few words: `guest kernel`, `cgroup memory`.
    pub subject: String,
    /// Whether it will do.
    pub verdict: Verdict,
    /// What was found, for a reader who knows the host.
    pub found: String,
    /// What to do about it, as a command or a sentence; absent when nothing is to be done.
    pub fix: Option<String>,
}

/// How a finding bears on starting sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Sandboxes start, with less than they could have.
    Degraded,
    /// No sandbox can start.
    Missing,
}

impl Finding {
    /// A prerequisite that is as it should be.
    pub fn good(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self { subject: subject.into(), verdict: Verdict::Good, found: found.into(), fix: None }
    }

    /// A prerequisite without which sandboxes start, but with less than they could have.
    pub fn degraded(subject: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let (subject, found, fix) = (subject.into(), found.into(), Some(fix.into()));
        Self { subject, verdict: Verdict::Degraded, found, fix }
    }

    /// A prerequisite without which no sandbox starts.
    pub fn missing(subject: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let (subject, found, fix) = (subject.into(), found.into(), Some(fix.into()));
        Self { subject, verdict: Verdict::Missing, found, fix }
    }
}
