//! What sandboxes use, and what becomes of those that nobody uses, with real sandboxes. Needs root, the guest
//! (`cargo xtask guest`) and the image debian:13; without them each test says so and passes.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod lab;

use std::time::{Duration, Instant};

use hutch_api::{Period, SandboxStatus, Until, UpdateSandbox, Usage};
use lab::{Lab, PATIENCE};

/// Works for twenty seconds of its own processor time.
const WORK: &str = "python3 -c \"
import time
while time.process_time() < 20: pass
print(time.process_time())
\"";

async fn used(lab: &Lab, id: &str) -> Usage {
    lab.client
        .sandbox_usage(id, Period::default())
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", lab.tail()))
        .usage
}

/// The processor time of a sandbox's processes as `/proc` has it, with those they have waited for, in seconds.
async fn by_process(lab: &Lab, id: &str) -> f64 {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let of = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // Fields 14 to 17 of proc_pid_stat(5), counted after the name.
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
    };
    lab.processes(id).await.into_iter().map(of).sum::<f64>() / ticks
}

async fn until(lab: &Lab, id: &str, status: SandboxStatus, patience: Duration) {
    let began = Instant::now();
    while lab.client.sandbox(id).await.unwrap().status != status {
        assert!(began.elapsed() < patience, "{id} does not come to be {status:?}\n{}", lab.tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_used_is_in_the_ledger_and_what_is_idle_pauses() {
    let Some(mut lab) = Lab::open().await else { return };
    let idle = lab.create().await;
    let limit = UpdateSandbox { auto_pause_after_seconds: Some(60), ..UpdateSandbox::default() };
    lab.client.update_sandbox(&idle, &limit).await.unwrap();

    let id = lab.create().await;
    let (before, before_by_process) = (used(&lab, &id).await, by_process(&lab, &id).await);
    let guest = lab.shell(&id, WORK).await.stdout;
    // The ledger is written at most half a second late when somebody asks.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let by_process = by_process(&lab, &id).await - before_by_process;
    let counted = used(&lab, &id).await.cpu_seconds - before.cpu_seconds;
    eprintln!(
        "the guest says {} s, its processes on the host {by_process:.2} s, the ledger {counted:.2} s",
        guest.trim()
    );
    assert!((counted - by_process).abs() <= 0.02 * by_process + 0.05, "{counted} is not {by_process}");

    // A pause takes the last reading, a paused sandbox uses nothing but space, and a kill forgets nothing.
    lab.client.pause_sandbox(&id, Until::Settled).await.unwrap();
    let paused = used(&lab, &id).await;
    assert!(paused.cpu_seconds >= before.cpu_seconds + counted);
    lab.kill();
    lab.start().await;
    let later = used(&lab, &id).await;
    assert_eq!((later.active_seconds, later.cpu_seconds), (paused.active_seconds, paused.cpu_seconds));
    assert!(later.paused_seconds > paused.paused_seconds && later.disk_mib_seconds > paused.disk_mib_seconds);
    lab.client.resume_sandbox(&id, Until::Settled).await.unwrap();

    // What the guest asks for itself, twice.
    for line in ["echo park >/run/self", "echo park >/run/self"] {
        lab.client.resume_sandbox(&id, Until::Settled).await.unwrap();
        drop(
            lab.client
                .execute(
                    &id,
                    &hutch_api::Execute {
                        cmd: "sh".into(),
                        args: vec!["-c".into(), line.into()],
                        ..Default::default()
                    },
                )
                .await,
        );
        until(&lab, &id, SandboxStatus::Paused, PATIENCE).await;
        assert_eq!(lab.client.sandbox(&id).await.unwrap().reason.as_deref(), Some("asked by itself"));
    }
    until(&lab, &idle, SandboxStatus::Paused, Duration::from_secs(240)).await;
    assert_eq!(lab.client.sandbox(&idle).await.unwrap().reason.as_deref(), Some("idle for 60 seconds"));
    lab.clean().await;
}
