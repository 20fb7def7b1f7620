//! A command in a sandbox, with its input and output joined to this process.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use hutch_api::client::Execution;
use hutch_api::{Execute, ExecuteEvent, ExecuteResult, Exit};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use ulid::Ulid;

use crate::context::{Context, Remote};
use crate::duration;
use crate::failure::Failure;
use crate::input::{self, Input};
use crate::output;
use crate::pair::{self, Assignment};

/// How a command is run; `run` and `exec` share it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExecutionOptions {
    /// Set an environment variable; may be given several times
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair::assignment)]
    pub(crate) env: Vec<Assignment>,
    /// Start in this directory of the sandbox; without it in the user's home
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Run as this user of the sandbox, by name or number; without it as root
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// End the command, and all that it started, after this long (30s, 5m, 1h30m)
    #[arg(long, short, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,
    /// Keep at most so many bytes of each of its outputs and throw the rest away
    #[arg(long, value_name = "BYTES")]
    max_output: Option<u64>,
    /// Give the command an empty input even when input is piped in
    #[arg(long)]
    no_stdin: bool,
}

/// How a command in a sandbox came to its end.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What its output was, when it was collected and not passed on.
    pub(crate) result: ExecuteResult,
    /// How long it ran.
    pub(crate) took: Duration,
    /// Whether the reader of our output went away first.
    pub(crate) unread: bool,
}

impl ExecutionOptions {
    /// Reads this process's input, if it has one that is to go in.
    pub(crate) async fn input(&self, context: &Context) -> Result<Input, Failure> {
        if self.no_stdin { Ok(Input::Nothing) } else { input::read(context).await }
    }

    /// The request for `words` in a sandbox that exists already. The service lets a command override only variables
    /// that were declared when the sandbox was created; the program `env` in the sandbox sets any.
    pub(crate) fn request_with_variables(&self, words: &[String]) -> Execute {
        if self.env.is_empty() {
            return self.request(words);
        }
        let set = variables(&self.env).into_iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = ["env".to_owned()].into_iter().chain(set).chain(words.iter().cloned()).collect();
        self.request(&words)
    }

    /// The request for `words`, its variables left to the sandbox.
    pub(crate) fn request(&self, words: &[String]) -> Execute {
        let (cmd, args) = words.split_first().expect("a command has at least one word");
        Execute {
            cmd: cmd.clone(),
            args: args.to_vec(),
            cwd: self.cwd.clone(),
            user: self.user.clone(),
            timeout_ms: self.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            max_output_bytes: self.max_output,
            ..Execute::default()
        }
    }
}

/// Assignments as a map; of two with one name the later holds.
pub(crate) fn variables(assignments: &[Assignment]) -> BTreeMap<String, String> {
    assignments.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect()
}

/// Runs a command to its end. With `--json` its output is collected, else it is passed on byte by byte as it comes.
/// Dropping the future kills the command.
pub(crate) async fn execute(
    context: &Context,
    service: &Remote,
    sandbox: &str,
    request: Execute,
    input: Input,
) -> Result<Ended, Failure> {
    let failed = |error: &_| service.explain(error).with_code(Failure::OURS);
    let request = with_input(service, sandbox, request, input).await?;
    let began = Instant::now();
    let mut execution = service.client().execute_streamed(sandbox, request).await.map_err(|error| failed(&error))?;
    let mut sinks = if context.json() { Sinks::collecting() } else { Sinks::passing() };
    let outcome = sinks.take_all(&mut execution).await.map_err(|error| match error {
        Broken::Call(error) => failed(&error),
        Broken::Output(error) => Failure::because("the output cannot be written", &error).with_code(Failure::OURS),
    })?;
    let (exit, unread) = match outcome {
        Some(exit) => (exit, false),
        None => (Exit::default(), true),
    };
    Ok(Ended { result: sinks.result(exit), took: began.elapsed(), unread })
}

/// Puts the input where the command reads it: into the request, or, when it is large, into a file of the sandbox.
async fn with_input(service: &Remote, sandbox: &str, mut request: Execute, input: Input) -> Result<Execute, Failure> {
    match input {
        Input::Nothing => {}
        Input::Whole(bytes) => request.stdin_base64 = Some(STANDARD.encode(bytes)),
        Input::Stream(content) => {
            let path = format!("/var/tmp/.input-{}", Ulid::new().to_string().to_ascii_lowercase());
            let written = service.client().write_file(sandbox, &path, Some(0o600), None, content).await;
            written.map_err(|error| service.explain(&error).with_code(Failure::OURS))?;
            // The file loses its name before the command runs: it goes with the last descriptor.
            let script = "exec 3<\"$0\" && rm -f \"$0\" && exec \"$@\" <&3 3<&-";
            let words =
                ["-c".to_owned(), script.to_owned(), path, std::mem::replace(&mut request.cmd, "/bin/sh".into())];
            request.args = words.into_iter().chain(std::mem::take(&mut request.args)).collect();
        }
    }
    Ok(request)
}

enum Broken {
    Call(hutch_api::client::ClientError),
    Output(io::Error),
}

/// Where output goes.
enum Sinks {
    Passed { stdout: tokio::io::Stdout, stderr: tokio::io::Stderr },
    Collected { stdout: Vec<u8>, stderr: Vec<u8> },
}

impl Sinks {
    fn passing() -> Self {
        Self::Passed { stdout: tokio::io::stdout(), stderr: tokio::io::stderr() }
    }

    fn collecting() -> Self {
        Self::Collected { stdout: Vec::new(), stderr: Vec::new() }
    }

    /// Takes all output; `None` when the reader of ours went away.
    async fn take_all(&mut self, execution: &mut Execution) -> Result<Option<Exit>, Broken> {
        loop {
            let written = match execution.next().await.map_err(Broken::Call)? {
                Some(ExecuteEvent::Exit(exit)) => return Ok(Some(exit)),
                Some(ExecuteEvent::Stdout(piece)) => match self {
                    Self::Passed { stdout, .. } => pass(stdout, &piece).await,
                    Self::Collected { stdout, .. } => {
                        stdout.extend_from_slice(&piece);
                        Ok(())
                    }
                },
                Some(ExecuteEvent::Stderr(piece)) => match self {
                    Self::Passed { stderr, .. } => pass(stderr, &piece).await,
                    Self::Collected { stderr, .. } => {
                        stderr.extend_from_slice(&piece);
                        Ok(())
                    }
                },
                None => return Ok(None),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(None),
                other => other.map_err(Broken::Output)?,
            }
        }
    }

    fn result(self, exit: Exit) -> ExecuteResult {
        let mut result = ExecuteResult {
            exit_code: exit.exit_code,
            error: exit.error,
            signal: exit.signal,
            timed_out: exit.timed_out,
            oom: exit.oom,
            truncated: exit.stdout_truncated || exit.stderr_truncated,
            stdout_truncated: exit.stdout_truncated,
            stderr_truncated: exit.stderr_truncated,
            ..ExecuteResult::default()
        };
        if let Self::Collected { stdout, stderr } = self {
            (result.stdout, result.stdout_base64) = readable(stdout);
            (result.stderr, result.stderr_base64) = readable(stderr);
        }
        result
    }
}

async fn pass<W: AsyncWrite + Unpin>(sink: &mut W, piece: &[u8]) -> io::Result<()> {
    sink.write_all(piece).await?;
    sink.flush().await
}

/// Bytes as text, and exactly when they are not.
fn readable(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (String::from_utf8_lossy(bytes).into_owned(), Some(STANDARD.encode(bytes)))
        }
    }
}

impl Ended {
    /// The exit code that passes on the command's.
    pub(crate) fn code(&self) -> u8 {
        if self.unread { 0 } else { u8::try_from(self.result.exit_code).unwrap_or(u8::MAX) }
    }

    /// Tells what an exit code alone would not.
    pub(crate) fn remark(&self, timeout: Option<Duration>) {
        let ExecuteResult { error, signal, timed_out, oom, truncated, .. } = &self.result;
        if let Some(error) = error {
            output::tell(&format!("error: the command could not be started: {}", crate::table::clean(error)));
        } else if *timed_out {
            let after = timeout.map_or_else(String::new, |timeout| format!(" of {}", duration::show(timeout)));
            output::tell(&format!("error: the command was ended: its time{after} was over (--timeout)"));
        } else if *oom {
            output::tell(
                "error: the sandbox's memory was out and its kernel ended something\n\nhint: take a larger --shape",
            );
        } else if let Some(signal) = signal {
            output::tell(&format!("error: the command was ended by {}", crate::table::clean(signal)));
        }
        if *truncated {
            output::tell("warning: a part of the output was thrown away (--max-output)");
        }
    }
}
