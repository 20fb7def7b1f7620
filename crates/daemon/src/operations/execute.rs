//! Running a command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use hutch_api::{Caller, Error, Execute, ExecuteEvent, ExecuteStream, Exit, SandboxReference};
use hutch_engine::agent::protocol::exec::{Ended, Exec, Outcome};
use hutch_engine::agent::{Event, Execution, Input};
use tokio::task::JoinHandle;

use super::find::{Purpose, Ready};
use crate::core::Core;
use crate::metrics::{Count, Timing};
use crate::owner::{Handle, Running};
use crate::store::SandboxRow;

pub(super) async fn execute(
    core: &Arc<Core>,
    caller: &Caller,
    reference: &SandboxReference,
    request: Execute,
) -> Result<ExecuteStream, Error> {
    let started = Instant::now();
    let Ready { handle, row, machine } = core.ready_for(caller, reference, Purpose::Command).await?;
    let stdin = request.stdin_bytes()?;
    let exec = translate(&row, request, stdin.is_some())?;
    let running = handle.activity.begin();
    let mut execution = match machine.agent.exec(&exec).await {
        Ok(execution) => execution,
        Err(error) => return Err(core.agent_error(&handle, error).await),
    };
    core.metrics.count(Count::ExecStarted);
    let feeder = execution.take_stdin().zip(stdin).map(|(input, bytes)| Feeder::start(input, bytes));
    let command = Command {
        core: Arc::clone(core),
        handle,
        execution,
        started,
        ended: false,
        _running: running,
        _feeder: feeder,
    };
    let events = stream::unfold(command, |mut command| async move {
        let event = command.next().await?;
        Some((event, command))
    });
    Ok(events.boxed())
}

/// A running command. Dropping it kills the command.
struct Command {
    core: Arc<Core>,
    handle: Handle,
    execution: Execution,
    started: Instant,
    ended: bool,
    _running: Running,
    _feeder: Option<Feeder>,
}

/// Writes the standard input beside the reading of the output; ends with the command.
struct Feeder(JoinHandle<()>);

impl Command {
    async fn next(&mut self) -> Option<Result<ExecuteEvent, Error>> {
        if self.ended {
            return None;
        }
        match self.execution.next().await {
            Ok(Some(Event::Stdout(bytes))) => Some(Ok(ExecuteEvent::Stdout(bytes))),
            Ok(Some(Event::Stderr(bytes))) => Some(Ok(ExecuteEvent::Stderr(bytes))),
            Ok(Some(Event::Ended(ended))) => {
                self.ended = true;
                self.core.metrics.time(Timing::Exec, self.started.elapsed());
                self.handle.activity.touch(self.core.clock.now());
                Some(exit(ended).map(ExecuteEvent::Exit))
            }
            // Without an end there is no exit code: the adapter makes an error of that.
            Ok(None) => None,
            Err(error) => {
                self.ended = true;
                self.core.metrics.count(Count::ExecLost);
                Some(Err(self.core.agent_error(&self.handle, error).await))
            }
        }
    }
}

impl Feeder {
    fn start(input: Input, bytes: Bytes) -> Self {
        Self(tokio::spawn(async move {
            // A command that does not read its input to the end is no failure, and the loss of the connection is
            // seen by who reads the output.
            drop(input.write(bytes).await);
        }))
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The request in the agent's words.
fn translate(row: &SandboxRow, request: Execute, stdin: bool) -> Result<Exec, Error> {
    if let Some(key) = request.env.keys().find(|key| !row.spec.envs.contains_key(*key)) {
        let declared: Vec<&str> = row.spec.envs.keys().map(String::as_str).collect();
        let message = format!("was not declared in envs at create; declared: [{}]", declared.join(" "));
        return Err(Error::field(format!("env.{key}"), message));
    }
    let mut env: BTreeMap<String, String> = row.spec.envs.clone();
    env.extend(request.env);
    let argv = std::iter::once(request.cmd).chain(request.args);
    // The agent's own default is `/`; it alone knows where the home of another user is.
    let is_root = request.user.as_deref().is_none_or(|user| user == "root" || user == "0");
    let cwd = request.cwd.or_else(|| is_root.then(|| "/root".to_owned()));
    Ok(Exec {
        cwd: cwd.map(Into::into),
        user: request.user,
        env: env.into_iter().map(|(key, value)| (key, value.into())).collect(),
        stdin,
        timeout_ms: request.timeout_ms,
        max_output_bytes: request.max_output_bytes,
        ..Exec::argv(argv)
    })
}

/// How a command ended, in the API's words. That the daemon itself had it killed has no exit code.
fn exit(ended: Ended) -> Result<Exit, Error> {
    let mut exit = Exit {
        oom: ended.out_of_memory_kills > 0,
        stdout_truncated: ended.stdout.truncated,
        stderr_truncated: ended.stderr.truncated,
        ..Exit::default()
    };
    match ended.outcome {
        Outcome::Exited { code } => exit.exit_code = code,
        Outcome::Signaled { signal, .. } => {
            exit.exit_code = 128 + signal;
            exit.signal = Some(signal_name(signal));
        }
        Outcome::TimedOut {} => {
            exit.exit_code = 124;
            exit.timed_out = true;
        }
        Outcome::OutOfMemory {} => {
            exit.exit_code = 137;
            exit.signal = Some("SIGKILL".to_owned());
            exit.oom = true;
        }
        Outcome::FailedToStart { exit_code, message, .. } => {
            exit.exit_code = exit_code;
            exit.error = Some(message);
        }
        Outcome::Cancelled {} => {
            let message = "the command was killed by the service before it ended";
            return Err(Error::new(hutch_api::ErrorKind::SandboxLost, message));
        }
    }
    Ok(exit)
}

/// The name of a signal on Linux, on every architecture that the guest has.
fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(signal - 1).ok().and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("SIG{signal}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;
    use hutch_engine::agent::protocol::exec::{OutputReport, StartStep};

    fn ended(outcome: Outcome) -> Ended {
        Ended {
            outcome,
            stdout: OutputReport::default(),
            stderr: OutputReport::default(),
            wall_us: 0,
            user_us: 0,
            system_us: 0,
            max_resident_bytes: 0,
            out_of_memory_kills: 0,
        }
    }

    #[test]
    fn each_way_to_end_is_told_from_the_others() {
        let exit = |outcome| exit(ended(outcome)).unwrap();
        assert_eq!(exit(Outcome::Exited { code: 3 }), Exit { exit_code: 3, ..Exit::default() });
        let killed = exit(Outcome::Signaled { signal: 11, core_dumped: false });
        assert_eq!((killed.exit_code, killed.signal.as_deref()), (139, Some("SIGSEGV")));
        let late = exit(Outcome::TimedOut {});
        assert!(late.timed_out && late.exit_code == 124);
        let greedy = exit(Outcome::OutOfMemory {});
        assert!(greedy.oom && greedy.exit_code == 137);
        let failed = StartStep::Program;
        let missing = Outcome::FailedToStart { step: failed, exit_code: 127, errno: 2, message: "no x".to_owned() };
        assert_eq!((exit(missing.clone()).exit_code, exit(missing).error.as_deref()), (127, Some("no x")));
        assert!(super::exit(ended(Outcome::Cancelled {})).is_err());
    }

    #[test]
    fn only_declared_variables_may_be_given() {
        let mut row = tests::row();
        row.spec.envs.insert("A".to_owned(), "1".to_owned());
        row.spec.envs.insert("B".to_owned(), "2".to_owned());
        let request = |key: &str| Execute {
            cmd: "env".to_owned(),
            env: BTreeMap::from([(key.to_owned(), "3".to_owned())]),
            ..Execute::default()
        };
        let exec = translate(&row, request("B"), false).unwrap();
        let values: Vec<_> = exec.env.values().map(|value| value.as_str().unwrap()).collect();
        assert_eq!(values, ["1", "3"]);
        let error = translate(&row, request("C"), false).unwrap_err();
        assert!(error.fields.contains_key("env.C") && error.message.contains("declared: [A B]"), "{error}");
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!([1, 9, 15, 31].map(signal_name), ["SIGHUP", "SIGKILL", "SIGTERM", "SIGSYS"]);
        assert_eq!([0, 34].map(signal_name), ["SIG0", "SIG34"]);
    }
}
