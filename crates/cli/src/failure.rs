//! How a command fails: an error, its causes, and a hint that can be acted on.

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use crate::style::{Stream, Style};

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// The exit code of `run` and `exec` when Hutch failed and not the command.
    pub(crate) const OURS: u8 = 125;

    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), causes: Vec::new(), hint: None, code: 1 }
    }

    /// An error with its chain of causes.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        Self::new(error.to_string()).causes_of(error)
    }

    /// A sentence of ours with the error below it and its causes below that.
    pub(crate) fn because(message: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        let mut failure = Self::new(message);
        failure.causes.push(error.to_string());
        failure.causes_of(error)
    }

    /// What failed of several things, each named; nothing when nothing did. Of one thing alone the failure is the whole.
    pub(crate) fn of_each(failures: Vec<(&str, Self)>) -> Option<Self> {
        let mut failures = failures.into_iter();
        let (first_name, first) = failures.next()?;
        let rest: Vec<(&str, Self)> = failures.collect();
        if rest.is_empty() {
            return Some(first);
        }
        let mut all = Self::new(format!("{} failed", rest.len() + 1));
        all.hint = first.hint.clone();
        all.causes.push(format!("{first_name}: {}", first.message));
        all.causes.extend(rest.into_iter().map(|(name, failure)| format!("{name}: {}", failure.message)));
        Some(all)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    fn causes_of(mut self, error: &(dyn Error + 'static)) -> Self {
        let mut next = error.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            // A transparent wrapper says what its source says.
            if self.causes.last() != Some(&text) && self.message != text {
                self.causes.push(text);
            }
            next = cause.source();
        }
        self
    }

    /// Prints it to standard error and returns its exit code.
    pub fn print(&self) -> ExitCode {
        // When nobody can read the error, the exit code still tells.
        let _ = std::io::stderr().write_all(self.text(Style::of(Stream::Error)).as_bytes());
        ExitCode::from(self.code)
    }

    fn text(&self, style: Style) -> String {
        let mut text = format!("{} {}\n", style.bad("error:"), self.message);
        for cause in &self.causes {
            text.push_str(&format!("  cause: {cause}\n"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{} {hint}\n", style.note("hint:")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_failures_each_is_named() {
        assert_eq!(Failure::of_each(Vec::new()), None);
        let one = Failure::new("no").with_hint("try");
        assert_eq!(Failure::of_each(vec![("a", one.clone())]), Some(one.clone()));
        let two = Failure::of_each(vec![("a", one), ("b", Failure::new("gone"))]).map(|all| all.text(Style::PLAIN));
        assert_eq!(two.as_deref(), Some("error: 2 failed\n  cause: a: no\n  cause: b: gone\n\nhint: try\n"));
    }

    #[test]
    fn an_error_its_causes_a_blank_line_and_a_hint() {
        let inner = std::io::Error::other("connection refused");
        let failure =
            Failure::because("no connection to a:1", &inner).with_hint("start the service with `hutch serve`");
        let expected = "error: no connection to a:1\n  cause: connection refused\n\n\
            hint: start the service with `hutch serve`\n";
        assert_eq!(failure.text(Style::PLAIN), expected);
    }
}
