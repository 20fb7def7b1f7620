//! The connection goes and comes back: as after a resume, where commands go on, and as after any other loss,
//! where they do not.

use std::time::{Duration, Instant};

use hutch_engine::agent::{Event, Execution};
use hutch_protocol::exec::Exec;
use hutch_protocol::machine::{Configure, ORPHANS_MS, Stats};

use super::commands::{counting, listing};
use super::rig::{PATIENCE, Rig, configuration};

/// Starts a command and forgets it once it has said something: no cancel of its own reaches the agent.
async fn start(rig: &Rig, exec: Exec) {
    let mut execution = rig.client.exec(&exec).await.unwrap();
    said(&mut execution).await;
    std::mem::forget(execution);
}

async fn said(execution: &mut Execution) {
    let event = execution.next().await.unwrap();
    assert!(matches!(event, Some(Event::Stdout(_))), "{event:?}");
}

fn continued() -> Configure {
    Configure { continues: true, ..configuration() }
}

async fn stats_until(rig: &Rig, fits: impl Fn(&Stats) -> bool) -> Stats {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = rig.client.stats().await.unwrap();
        if fits(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "{stats:?}");
    }
}

/// More output than a pipe and all windows hold: they can only end if somebody reads it.
#[tokio::test]
async fn commands_that_continue_are_drained_and_keep_their_input_open() {
    let mut rig = Rig::new().await;
    let (flood, files) = (rig.path("flood"), rig.path("files"));
    let script = format!("echo ready; yes | head -c 50000000; yes | head -c 50000000 >&2; echo whole >{flood}");
    start(&rig, Exec::shell(script)).await;
    let script = format!("echo ready; cat >/dev/null; echo ended >{files}");
    start(&rig, Exec { stdin: true, ..Exec::shell(script) }).await;
    start(&rig, Exec::shell("echo ready; sleep 71 & setsid sleep 71; wait")).await;
    rig.until(&counting("sleep 71"), "2").await;

    rig = rig.reconnect().await;
    let configured = rig.client.configure(&continued()).await.unwrap();
    assert!(configured.took_us < 60_000_000);
    rig.until(&format!("cat {flood} 2>/dev/null || true"), "whole").await;
    let stats = stats_until(&rig, |stats| stats.detached == 2).await;
    assert_eq!(stats.execs, 0);
    assert_eq!(rig.shell(&counting("sleep 71")).await.trim(), "2");
    // An end of input that nobody sent would tell a command that it had all of it.
    assert_eq!(rig.shell(&format!("test -e {files} || echo waits")).await, "waits\n");

    // And again: what goes on does not need to be told twice, nor does it come back to anybody.
    rig = rig.reconnect().await;
    rig.client.configure(&configuration()).await.unwrap();
    assert_eq!(rig.client.stats().await.unwrap().detached, 2, "only commands of the lost connection are killed");
    rig.shell(&format!("kill $({}) $({})", listing("sleep 71"), listing("cat"))).await;
    rig.until(&format!("cat {files} 2>/dev/null || true"), "ended").await;
    stats_until(&rig, |stats| stats.detached == 0).await;
    rig.finish().await;
}

#[tokio::test]
async fn a_command_that_continues_keeps_its_timeout() {
    let mut rig = Rig::new().await;
    let exec = Exec { timeout_ms: Some(1500), ..Exec::shell("echo ready; sleep 72") };
    start(&rig, exec).await;
    rig = rig.reconnect().await;
    rig.client.configure(&continued()).await.unwrap();
    rig.until(&counting("sleep 72"), "0").await;
    rig.finish().await;
}

#[tokio::test]
async fn without_a_word_commands_are_killed_in_the_end() {
    let mut rig = Rig::new().await;
    start(&rig, Exec::shell("echo ready; sleep 73")).await;
    let lost = Instant::now();
    rig = rig.reconnect().await;
    rig.until(&counting("sleep 73"), "0").await;
    let waited = lost.elapsed();
    assert!(waited >= Duration::from_millis(ORPHANS_MS - 500), "killed after {waited:?} though a word could come");
    rig.finish().await;
}

#[tokio::test]
async fn many_losses_in_a_row_lose_nothing_that_continues() {
    let mut rig = Rig::new().await;
    let count = rig.path("count");
    let script = format!(
        "echo $$ >{count}.pid; echo ready; i=0; while :; do i=$((i+1)); echo $i >{count}; echo $i; sleep 0.01; done"
    );
    start(&rig, Exec::shell(script)).await;
    let mut last = 0;
    for round in 0..20 {
        let held = rig.client.exec(&Exec::shell("echo ready; exec sleep 74")).await.unwrap();
        std::mem::forget(held);
        rig = rig.reconnect().await;
        rig.client.configure(&continued()).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now: u64 = rig.shell(&format!("cat {count}")).await.trim().parse().unwrap_or(last);
            assert!(now >= last);
            if now > last {
                last = now;
                break;
            }
            assert!(Instant::now() < deadline, "it does not count on in round {round}");
        }
    }
    stats_until(&rig, |stats| stats.detached == 21).await;
    rig.until(&counting("sleep 74"), "20").await;
    rig.shell(&format!("kill $({})", listing("sleep 74"))).await;
    rig.shell(&format!("kill $(cat {count}.pid)")).await;
    stats_until(&rig, |stats| stats.detached == 0).await;
    rig.finish().await;
}

#[tokio::test]
async fn a_machine_can_be_warmed_before_it_is_configured() {
    let rig = Rig::start(hutch_engine::agent::Options::default(), false).await;
    let took = rig.client.warm().await.unwrap();
    assert!(took > Duration::ZERO);
    rig.client.configure(&configuration()).await.unwrap();
    rig.client.warm().await.unwrap();
    assert_eq!(rig.shell("echo ok").await, "ok\n");
    let stats = rig.client.stats().await.unwrap();
    assert_eq!((stats.execs, stats.detached), (0, 0));
}
