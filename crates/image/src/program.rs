//! External programs: started in a process group and a PID and mount namespace of their own, watched line by line,
//! ended with all that they started.
//!
//! Every program runs under `setpriv --pdeathsig KILL`, so it dies with the thread that started it. One that starts
//! others runs under `unshare` as well: when the first process of its PID namespace dies the kernel kills the rest,
//! and the mounts it made are gone with the last of them. So neither a cancelled nor a killed build leaves a process
//! or a mount on the host.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::progress::Cancel;

/// How many last lines of output an error carries.
const TAIL: usize = 20;

/// How often a running program looks at the cancel flag.
const GLANCE: Duration = Duration::from_millis(100);

/// How long killed processes may take to die.
const DEATH: Duration = Duration::from_secs(10);

/// Why a program gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended, but not with success.
    #[error("{program} failed ({status}){}", shown(output))]
    Failed {
        /// The program.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it printed.
        output: Vec<String>,
    },
    /// The build was cancelled while it ran.
    #[error("{program} was cancelled")]
    Cancelled {
        /// The program.
        program: &'static str,
    },
}

fn shown(output: &[String]) -> String {
    output.iter().map(|line| format!("\n  | {line}")).collect()
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    command: Command,
}

impl Program {
    /// One that starts no other programs.
    pub(crate) fn single(name: &'static str) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(name);
        Self { name, command }
    }

    /// One that may start others and make mounts.
    pub(crate) fn enclosed(name: &'static str) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare"]);
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
        // The shell is the namespace's first process: it reaps orphans, which these programs would not.
        command.args(["sh", "-c", "\"$@\"; exit $?", "sh", name]);
        Self { name, command }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    pub(crate) fn directory(mut self, path: &Path) -> Self {
        self.command.current_dir(path);
        self
    }

    /// Drops the environment of this process and sets what a program in a tree may expect.
    pub(crate) fn plain_environment(mut self) -> Self {
        self.command.env_clear();
        self.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8")
    }

    /// Runs to the end; `line` gets each line of output and of error output as it comes.
    pub(crate) fn run(mut self, cancel: &Cancel, mut line: impl FnMut(&str)) -> Result<(), ProgramError> {
        let program = self.name;
        let start = |source| ProgramError::Start { program, source };
        let (reader, writer) = io::pipe().map_err(start)?;
        let other_writer = writer.try_clone().map_err(start)?;
        self.command.stdin(Stdio::null()).stdout(writer).stderr(other_writer).process_group(0);
        let mut child = self.command.spawn().map_err(start)?;
        // The command holds the write ends: with them open the pipe would never end.
        drop(self.command);

        let lines = read_lines(reader);
        let mut tail = VecDeque::new();
        let finished = watch(&lines, cancel, |text| {
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(text.to_owned());
            line(text);
        });
        if !finished {
            end(&mut child, &lines);
            return Err(ProgramError::Cancelled { program });
        }
        let status = child.wait().map_err(start)?;
        if status.success() { Ok(()) } else { Err(ProgramError::Failed { program, status, output: tail.into() }) }
    }

    /// Runs to the end and returns what it printed, error output included.
    pub(crate) fn output(self, cancel: &Cancel) -> Result<Vec<String>, ProgramError> {
        let mut lines = Vec::new();
        self.run(cancel, |line| lines.push(line.to_owned()))?;
        Ok(lines)
    }
}

/// Passes lines on until the pipe ends (true) or the build is cancelled (false). The pipe ends when every process
/// that could write to it is gone.
fn watch(lines: &Receiver<String>, cancel: &Cancel, mut line: impl FnMut(&str)) -> bool {
    loop {
        match lines.recv_timeout(GLANCE) {
            Ok(text) => line(&text),
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if cancel.is_cancelled() {
            return false;
        }
    }
}

/// Kills the program's process group and waits until none of its processes holds the pipe any more.
fn end(child: &mut Child, lines: &Receiver<String>) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It fails only when the group is already gone.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let deadline = Instant::now() + DEATH;
    while Instant::now() < deadline {
        if lines.recv_timeout(GLANCE) == Err(RecvTimeoutError::Disconnected) {
            break;
        }
    }
    let _ = child.wait();
}

fn read_lines(pipe: PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(64);
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // A program that prints without an end must not fill memory: a line is cut at the buffer's size.
        while let Ok(available) = pipe.fill_buf().map(<[u8]>::to_vec) {
            if available.is_empty() {
                break;
            }
            for &byte in &available {
                if byte == b'\n' || byte == b'\r' || line.len() >= 4096 {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    line.clear();
                    if !text.is_empty() && sender.send(text).is_err() {
                        return;
                    }
                }
                if byte != b'\n' && byte != b'\r' {
                    line.push(byte);
                }
            }
            pipe.consume(available.len());
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !text.is_empty() {
            let _ = sender.send(text);
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::single("sh").args(["-c", script])
    }

    #[test]
    fn lines_of_both_streams_arrive() {
        let mut lines =
            shell("echo a; printf 'b\\rc\\n\\n' >&2; printf d").output(&Cancel::default()).expect("success");
        lines.sort();
        assert_eq!(lines, ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_failure_carries_status_and_last_lines() {
        let error = shell("seq 100; exit 3").output(&Cancel::default()).expect_err("exit status 3");
        let text = error.to_string();
        assert!(text.starts_with("sh failed (exit status: 3)\n  | 81\n"), "{text}");
        assert!(text.ends_with("\n  | 100"), "{text}");
    }

    #[test]
    fn a_missing_program_says_its_name() {
        let error = Program::single("hutch-no-such-program").output(&Cancel::default()).expect_err("no program");
        assert!(error.to_string().contains("hutch-no-such-program"), "{error}");
    }

    #[test]
    fn cancelling_ends_the_program_and_its_children() {
        let cancel = Cancel::default();
        let flag = cancel.clone();
        let mut child = String::new();
        let result = shell("sleep 1000 & echo $!; wait").run(&cancel, |line| {
            line.clone_into(&mut child);
            flag.cancel();
        });
        assert!(matches!(result, Err(ProgramError::Cancelled { program: "sh" })), "{result:?}");
        // The pipe ends a moment before the process does; an orphan may then wait for its new parent.
        let deadline = Instant::now() + Duration::from_secs(10);
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z ") {
            assert!(Instant::now() < deadline, "{}", state());
            thread::yield_now();
        }
    }
}
