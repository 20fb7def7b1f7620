//! Commands in time: signals, cancelling, many of them, slow readers, reconnection.

use std::time::Instant;

use bytes::Bytes;
use hutch_engine::agent::{ClientError, Event, Options};
use hutch_protocol::exec::{Exec, Outcome, Signal, SignalTarget};
use hutch_protocol::machine::{ReadStats, Reseed, SetClock};
use hutch_protocol::{Code, Request};

use super::commands::{counting, listing};
use super::rig::{PATIENCE, Rig, configuration};

/// Output up to and with this text.
async fn read_until(execution: &mut hutch_engine::agent::Execution, text: &str) {
    let mut output = Vec::new();
    while !String::from_utf8_lossy(&output).contains(text) {
        match execution.next().await.unwrap() {
            Some(Event::Stdout(bytes)) => output.extend_from_slice(&bytes),
            event => panic!("{event:?} before {text:?}"),
        }
    }
}

/// The outcome, whatever is still printed.
async fn outcome(execution: &mut hutch_engine::agent::Execution) -> Outcome {
    tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(Event::Ended(ended)) = execution.next().await.unwrap() {
                assert_eq!(execution.next().await.unwrap(), None, "nothing comes after the end");
                return ended.outcome;
            }
        }
    })
    .await
    .expect("the command ends")
}

#[tokio::test]
async fn signals_reach_the_process_its_group_or_its_tree() {
    let rig = Rig::new().await;
    let traps = "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.05; done";
    let mut execution = rig.client.exec(&Exec::shell(traps)).await.unwrap();
    read_until(&mut execution, "ready").await;
    execution.signal(Signal { signal: 10, to: SignalTarget::Process });
    assert_eq!(outcome(&mut execution).await, Outcome::Exited { code: 9 });

    let terminated = Outcome::Signaled { signal: 15, core_dumped: false };
    for to in [SignalTarget::Group, SignalTarget::Tree] {
        let script = "setsid sleep 63 & sleep 64 & echo ready; wait";
        let mut execution = rig.client.exec(&Exec::shell(script)).await.unwrap();
        read_until(&mut execution, "ready").await;
        rig.until(&counting("sleep 6[34]"), "2").await;
        execution.signal(Signal { signal: 15, to });
        assert_eq!(outcome(&mut execution).await, terminated);
        rig.until(&counting("sleep 64"), "0").await;
        // A session of its own is another group, but the same tree.
        let left = if to == SignalTarget::Group { "1" } else { "0" };
        rig.until(&counting("sleep 63"), left).await;
        if to == SignalTarget::Group {
            rig.shell(&format!("kill $({})", listing("sleep 63"))).await;
        }
    }

    // Nonsense and lateness do no harm.
    let mut execution = rig.client.exec(&Exec::shell("true")).await.unwrap();
    execution.signal(Signal { signal: 4000, to: SignalTarget::Group });
    assert_eq!(outcome(&mut execution).await, Outcome::Exited { code: 0 });
    execution.signal(Signal { signal: 9, to: SignalTarget::Tree });
    execution.cancel();
    rig.finish().await;
}

#[tokio::test]
async fn cancelling_and_dropping_kill_the_tree() {
    let rig = Rig::new().await;
    let script = "sleep 65 & setsid sleep 65 & echo ready; exec sleep 65";
    let mut execution = rig.client.exec(&Exec::shell(script)).await.unwrap();
    read_until(&mut execution, "ready").await;
    rig.until(&counting("sleep 65"), "3").await;
    execution.cancel();
    assert_eq!(outcome(&mut execution).await, Outcome::Cancelled {});
    assert_eq!(rig.shell(&counting("sleep 65")).await.trim(), "0");

    let mut execution = rig.client.exec(&Exec::shell(script)).await.unwrap();
    read_until(&mut execution, "ready").await;
    rig.until(&counting("sleep 65"), "3").await;
    drop(execution);
    rig.until(&counting("sleep 65"), "0").await;

    // One that nobody reads from is killed as well.
    let execution = rig.client.exec(&Exec::shell("yes; sleep 65")).await.unwrap();
    rig.until(&counting("yes"), "1").await;
    drop(execution);
    rig.until(&counting("yes"), "0").await;
    rig.finish().await;
}

#[tokio::test]
async fn a_stopped_command_can_be_killed() {
    let rig = Rig::new().await;
    let exec = Exec { timeout_ms: Some(300), ..Exec::shell("echo ready; kill -STOP $$; echo no") };
    let collected = rig.run(exec).await.unwrap();
    assert_eq!((collected.ended.outcome, &collected.stdout[..]), (Outcome::TimedOut {}, &b"ready\n"[..]));
    rig.finish().await;
}

/// A gigabyte that nobody hurries to read: neither side holds more than the window.
#[tokio::test]
async fn a_gigabyte_of_output_and_a_slow_reader() {
    let rig = Rig::new().await;
    let total: u64 = if std::env::var_os("HUTCH_AGENT_SOCKET").is_some() { 100_000_000 } else { 1_000_000_000 };
    let mut execution = rig.client.exec(&Exec::shell(format!("yes | head -c {total}; echo end >&2"))).await.unwrap();
    // The command stands still until somebody reads: other commands run meanwhile.
    rig.shell("true").await;
    let (mut count, mut largest, mut errors) = (0_u64, 0, Vec::new());
    let ended = loop {
        match execution.next().await.unwrap().unwrap() {
            Event::Stdout(bytes) => {
                largest = largest.max(bytes.len());
                count += bytes.len() as u64;
            }
            Event::Stderr(bytes) => errors.extend_from_slice(&bytes),
            Event::Ended(ended) => break ended,
        }
    };
    assert_eq!((count, errors.as_slice()), (total, &b"end\n"[..]));
    assert_eq!((ended.stdout.bytes, ended.stdout.truncated), (total, false));
    assert!(largest <= 512 << 10, "{largest} bytes at once");
    if let Some(pid) = rig.pid() {
        let peak = peak_memory(pid);
        assert!(peak < 32 << 20, "the agent needed {peak} bytes");
    }
    rig.finish().await;
}

#[tokio::test]
async fn input_and_output_at_once_do_not_block_each_other() {
    let rig = Rig::new().await;
    let mut execution = rig.client.exec(&Exec { stdin: true, ..Exec::argv(["cat"]) }).await.unwrap();
    let input = execution.take_stdin().unwrap();
    let piece = Bytes::from(vec![7; 1 << 20]);
    let writing = async {
        for _ in 0..64 {
            input.write(piece.clone()).await.unwrap();
        }
        input.end();
    };
    let (collected, ()) = tokio::join!(execution.collect(64 << 20), writing);
    let collected = collected.unwrap();
    assert_eq!(collected.stdout.len(), 64 << 20);
    assert!(collected.stdout.iter().all(|byte| *byte == 7));
    rig.finish().await;
}

#[tokio::test]
async fn too_much_to_collect_kills_the_command() {
    let rig = Rig::new().await;
    let execution = rig.client.exec(&Exec::argv(["yes", "collect"])).await.unwrap();
    let error = execution.collect(1 << 20).await.unwrap_err();
    assert!(matches!(error, ClientError::OutputTooLarge { limit: 0x10_0000 }), "{error:?}");
    rig.until(&counting("yes collect"), "0").await;
    rig.finish().await;
}

/// Thousands of commands, several at a time, with orphans: all are reaped, and no descriptor is lost.
#[tokio::test]
async fn thousands_of_commands_leave_nothing() {
    let rig = Rig::new().await;
    let total = if std::env::var_os("HUTCH_AGENT_SOCKET").is_some() { 10_000 } else { 2_000 };
    let descriptors = "ls /proc/$PPID/fd | wc -l";
    rig.shell("true").await;
    let before: usize = rig.shell(descriptors).await.trim().parse().unwrap();
    let run = |number: usize| {
        let rig = &rig;
        async move {
            // Every tenth leaves an orphan that ends by itself.
            let exec = match number % 10 {
                0 => Exec::shell("(true &) ; exit 0"),
                1 => Exec { stdin: true, ..Exec::argv(["true"]) },
                _ => Exec::argv(["true"]),
            };
            let outcome = rig.run(exec).await.unwrap().ended.outcome;
            assert_eq!(outcome, Outcome::Exited { code: 0 });
        }
    };
    use futures_util::StreamExt as _;
    futures_util::stream::iter(0..total).map(run).buffer_unordered(8).collect::<()>().await;
    let zombies = "grep -l \"^PPid:[[:space:]]*$PPID\\$\" /proc/[0-9]*/status 2>/dev/null \
        | xargs -r grep -l '^State:.Z' 2>/dev/null | wc -l";
    rig.until(zombies, "0").await;
    let after: usize = rig.shell(descriptors).await.trim().parse().unwrap();
    assert!(after < before + 100, "{before} descriptors before, {after} after");
    let stats = rig.client.stats().await.unwrap();
    assert_eq!(stats.execs, 0);
    rig.finish().await;
}

#[tokio::test]
async fn many_commands_run_at_once() {
    let rig = Rig::new().await;
    let script = "cat; exit $0";
    let all = (0..200_u32).map(|number| {
        let rig = &rig;
        async move {
            let code = number % 100;
            let exec = Exec { stdin: true, ..Exec::argv(["sh", "-c", script, &code.to_string()]) };
            let mut execution = rig.client.exec(&exec).await.unwrap();
            let input = execution.take_stdin().unwrap();
            input.write(number.to_string()).await.unwrap();
            input.end();
            let collected = execution.collect(1000).await.unwrap();
            assert_eq!(collected.stdout, number.to_string());
            assert_eq!(collected.ended.outcome, Outcome::Exited { code: i32::try_from(code).unwrap() });
        }
    });
    futures_util::future::join_all(all).await;
    rig.finish().await;
}

#[tokio::test]
async fn what_a_command_used_is_told() {
    let rig = Rig::new().await;
    let started = Instant::now();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let ended = rig.run(Exec::shell(script)).await.unwrap().ended;
    let elapsed = u64::try_from(started.elapsed().as_micros()).unwrap();
    assert!(ended.user_us + ended.system_us > 0 && ended.max_resident_bytes > 100_000, "{ended:?}");
    assert!(ended.wall_us > 0 && ended.wall_us <= elapsed, "{} {elapsed}", ended.wall_us);
    rig.finish().await;
}

#[tokio::test]
async fn nothing_runs_before_the_guest_is_configured() {
    let rig = Rig::start(Options::default(), false).await;
    if rig.pid().is_none() {
        return eprintln!("skipped: the agent at HUTCH_AGENT_SOCKET was configured by another test");
    }
    let refused = |error: ClientError| error.failure().map(|failure| failure.code);
    let exec = rig.run(Exec::shell("true")).await;
    assert_eq!(exec.map(|_| ()).map_err(refused), Err(Some(Code::NotConfigured)));
    let stat = hutch_protocol::files::Stat { path: "/".into(), follow: false };
    assert_eq!(rig.client.stat(&stat).await.map(|_| ()).map_err(refused), Err(Some(Code::NotConfigured)));

    let mut wrong = configuration();
    wrong.entropy.truncate(10);
    assert_eq!(rig.client.configure(&wrong).await.map(|_| ()).map_err(refused), Err(Some(Code::InvalidRequest)));
    assert_eq!(rig.run(Exec::shell("true")).await.map(|_| ()).map_err(refused), Err(Some(Code::NotConfigured)));

    let configured = rig.client.configure(&configuration()).await.unwrap();
    assert!(!configured.kernel_release.is_empty() && configured.boot_wall_ns > 0, "{configured:?}");
    assert_eq!(rig.shell("uname -r").await.trim(), configured.kernel_release);
    // Again is no error, and what is new counts.
    let mut again = configuration();
    again.env.insert("FROM_SANDBOX".to_owned(), "again".into());
    rig.client.configure(&again).await.unwrap();
    assert_eq!(rig.shell("echo $FROM_SANDBOX").await, "again\n");
}

#[tokio::test]
async fn clock_and_entropy_are_a_guests_own() {
    let rig = Rig::new().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let clock = SetClock { wall_ns: u64::try_from(now.as_nanos()).unwrap() };
    let reseed = Reseed { entropy: vec![1; 64] };
    if rig.pid().is_some() {
        // On a machine of others the agent leaves both alone.
        let code = |error: ClientError| error.failure().map(|failure| failure.code);
        assert_eq!(rig.client.set_clock(&clock).await.map_err(code), Err(Some(Code::Permission)));
        assert_eq!(rig.client.reseed(&reseed).await.map_err(code), Err(Some(Code::Permission)));
    } else {
        rig.client.set_clock(&SetClock { wall_ns: 1_000_000_000_000_000_000 }).await.unwrap();
        assert!(rig.shell("date -u +%Y").await.starts_with("2001"));
        let set = rig.client.set_clock(&clock).await.unwrap();
        assert!(set.was_ahead_ns < 0, "{set:?}");
        rig.client.reseed(&reseed).await.unwrap();
    }
    assert_eq!(ReadStats::OPERATION.name(), "read stats");
    let stats = rig.client.stats().await.unwrap();
    assert!(stats.memory_total_bytes > stats.memory_available_bytes && stats.disk_total_bytes > 0, "{stats:?}");
    rig.finish().await;
}

/// The host goes and comes back: its commands are dead, their background children of before are not.
#[tokio::test]
async fn a_lost_host_loses_its_commands_and_nothing_else() {
    let mut rig = Rig::new().await;
    rig.shell("sleep 66 >/dev/null 2>&1 &").await;
    let mut execution = rig.client.exec(&Exec::shell("sleep 67 & echo ready; setsid sleep 67; wait")).await.unwrap();
    read_until(&mut execution, "ready").await;
    rig.until(&counting("sleep 67"), "2").await;
    // Not by a cancel of their own: the connection itself goes.
    std::mem::forget(execution);
    rig = rig.reconnect().await;
    rig.client.configure(&configuration()).await.unwrap();
    rig.until(&counting("sleep 67"), "0").await;
    assert_eq!(rig.shell(&counting("sleep 66")).await.trim(), "1");
    rig.shell(&format!("kill $({})", listing("sleep 66"))).await;
    rig.finish().await;
}

/// The largest resident set that the process ever had, bytes.
pub(crate) fn peak_memory(pid: rustix::process::Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
