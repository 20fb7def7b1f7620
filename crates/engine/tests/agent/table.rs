//! One row for each command: what is run, and how it must end.

use std::fmt::Write as _;

use bytes::Bytes;
use hutch_engine::agent::{ClientError, Collected};
use hutch_protocol::Code;
use hutch_protocol::exec::{Exec, Outcome, StartStep};

use super::rig::{LIMIT, PATIENCE, Rig};

/// A command and its end.
pub(crate) struct Row {
    name: &'static str,
    exec: Exec,
    stdin: Option<Vec<u8>>,
    expect: Expect,
}

/// How a command must end.
#[derive(Debug, Default)]
pub(crate) struct Expect {
    outcome: Option<Outcome>,
    refused: Option<Code>,
    failed: Option<(StartStep, i32)>,
    stdout: Option<Vec<u8>>,
    contains: &'static str,
    stderr: Option<Vec<u8>>,
    message: Option<&'static str>,
    truncated: (bool, bool),
    held: bool,
}

impl Row {
    /// A script that prints this and succeeds, unless more is said.
    pub(crate) fn shell(name: &'static str, script: impl Into<Vec<u8>>) -> Self {
        Self::exec(name, Exec::shell(script.into()))
    }

    /// A program that succeeds, unless more is said.
    pub(crate) fn argv(name: &'static str, argv: &[&str]) -> Self {
        Self::exec(name, Exec::argv(argv.iter().copied()))
    }

    /// A command that succeeds, unless more is said.
    pub(crate) fn exec(name: &'static str, exec: Exec) -> Self {
        let expect = Expect { outcome: Some(Outcome::Exited { code: 0 }), ..Expect::default() };
        Self { name, exec, stdin: None, expect }
    }

    /// Changes the request.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Exec)) -> Self {
        change(&mut self.exec);
        self
    }

    /// Gives it this input and its end.
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.exec.stdin = true;
        self.stdin = Some(bytes.into());
        self
    }

    /// It prints this.
    pub(crate) fn prints(mut self, stdout: impl Into<Vec<u8>>) -> Self {
        self.expect.stdout = Some(stdout.into());
        self
    }

    /// It prints this, and more.
    pub(crate) fn greps(mut self, contains: &'static str) -> Self {
        self.expect.contains = contains;
        self
    }

    /// It says this on standard error.
    pub(crate) fn says(mut self, stderr: impl Into<Vec<u8>>) -> Self {
        self.expect.stderr = Some(stderr.into());
        self
    }

    /// It ends like this.
    pub(crate) fn ends(mut self, outcome: Outcome) -> Self {
        self.expect.outcome = Some(outcome);
        self
    }

    /// It ends with this status.
    pub(crate) fn exits(self, code: i32) -> Self {
        self.ends(Outcome::Exited { code })
    }

    /// It cannot be started, and the reason contains this.
    pub(crate) fn fails(mut self, step: StartStep, exit_code: i32, message: &'static str) -> Self {
        self.expect.outcome = None;
        self.expect.failed = Some((step, exit_code));
        self.expect.message = Some(message);
        self
    }

    /// The request is refused, and the reason contains this.
    pub(crate) fn refused(mut self, code: Code, message: &'static str) -> Self {
        self.expect.outcome = None;
        self.expect.refused = Some(code);
        self.expect.message = Some(message);
        self
    }

    /// Of standard output, or of standard error, more was written than sent.
    pub(crate) fn truncated(mut self, stdout: bool, stderr: bool) -> Self {
        self.expect.truncated = (stdout, stderr);
        self
    }

    /// A background child still holds the output.
    pub(crate) fn held(mut self) -> Self {
        self.expect.held = true;
        self
    }

    async fn run(&self, rig: &Rig) -> Result<Collected, ClientError> {
        let mut execution = rig.client.exec(&self.exec).await?;
        let input = execution.take_stdin().zip(self.stdin.clone());
        let feeding = async {
            if let Some((input, bytes)) = input {
                match input.write(Bytes::from(bytes)).await {
                    Ok(()) | Err(ClientError::InputClosed) => input.end(),
                    Err(error) => panic!("{}: {error}", self.name),
                }
            }
        };
        tokio::join!(execution.collect(LIMIT), feeding).0
    }

    /// What is wrong, if anything is.
    fn judge(&self, result: &Result<Collected, ClientError>) -> String {
        let mut wrong = String::new();
        let collected = match (result, self.expect.refused) {
            (Ok(collected), None) => collected,
            (Err(ClientError::Refused { source, .. }), Some(code)) => {
                if source.code != code || !source.message.contains(self.expect.message.unwrap_or_default()) {
                    let _ = write!(wrong, "refused with {source:?}; ");
                }
                return wrong;
            }
            (result, _) => return format!("{result:?}"),
        };
        let ended = &collected.ended;
        if let Some(outcome) = &self.expect.outcome
            && *outcome != ended.outcome
        {
            let _ = write!(wrong, "outcome {:?} instead of {outcome:?}; ", ended.outcome);
        }
        if let Some(expected) = self.expect.failed {
            let fits = matches!(&ended.outcome, Outcome::FailedToStart { step, exit_code, message, .. }
                if (*step, *exit_code) == expected && message.contains(self.expect.message.unwrap_or_default()));
            if !fits {
                let _ = write!(wrong, "outcome {:?} instead of {expected:?}; ", ended.outcome);
            }
        }
        for (name, expected, found, report) in [
            ("stdout", &self.expect.stdout, &collected.stdout, ended.stdout),
            ("stderr", &self.expect.stderr, &collected.stderr, ended.stderr),
        ] {
            if let Some(expected) = expected
                && expected[..] != found[..]
            {
                let _ = write!(wrong, "{name} {} instead of {}; ", start(found), start(expected));
            }
            if report.bytes != found.len() as u64 {
                let _ = write!(wrong, "{name} has {} bytes where {} were reported; ", found.len(), report.bytes);
            }
        }
        if !String::from_utf8_lossy(&collected.stdout).contains(self.expect.contains) {
            let _ = write!(wrong, "stdout {} without {:?}; ", start(&collected.stdout), self.expect.contains);
        }
        if (ended.stdout.truncated, ended.stderr.truncated) != self.expect.truncated {
            let _ = write!(wrong, "truncated {:?} {:?}; ", ended.stdout, ended.stderr);
        }
        if ended.stdout.held != self.expect.held {
            let _ = write!(wrong, "held {:?}; ", ended.stdout);
        }
        wrong
    }
}

/// The beginning of some bytes.
fn start(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(200)];
    format!("\"{}\" ({} bytes)", start.escape_ascii(), bytes.len())
}

/// Runs all rows and fails with all that is wrong.
pub(crate) async fn check(rig: &Rig, rows: &[Row]) {
    let mut failures = String::new();
    for row in rows {
        let result = tokio::time::timeout(PATIENCE, row.run(rig)).await;
        let wrong = match result {
            Ok(result) => row.judge(&result),
            Err(_) => "it did not end".to_owned(),
        };
        if !wrong.is_empty() {
            let _ = writeln!(failures, "{}: {wrong}", row.name);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}
