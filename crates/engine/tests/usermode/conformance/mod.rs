//! What every engine must do. Each function is one promise of the [`hutch_engine::Engine`] trait; an engine's own
//! test calls them with a [`lab::Lab`] of that engine.

pub(crate) mod cost;
pub(crate) mod lab;
mod life;
pub(crate) mod saved;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream;
use hutch_engine::artefact::ArtefactKind;
use hutch_engine::machine::ExitReason;
use hutch_engine::{AdoptError, Machine, Origin};
use hutch_protocol::exec::Exec;
use hutch_protocol::files::{ReadFile, WriteFile};

use lab::{Lab, PATIENCE, output, shell};

pub(crate) async fn a_machine_runs_commands_and_keeps_files(lab: &Lab) {
    let spec = lab.spec();
    let machine = lab.start(&spec).await;
    let times = machine.times.expect("a started machine says how long it took");
    assert!(times.total() > Duration::ZERO);
    let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let release = output(&machine.agent, "uname -r").await;
    assert_ne!(release, host.trim(), "a kernel of its own");
    assert_eq!(output(&machine.agent, "hostname").await, spec.hostname);
    let content = bytes::Bytes::from(vec![7_u8; 3 << 20]);
    let write =
        WriteFile { path: "/root/file".into(), mode: None, user: None, size: None, max_bytes: None, sync: false };
    let pieces: Vec<_> = content.chunks(1 << 20).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
    assert_eq!(machine.agent.write_file(&write, stream::iter(pieces)).await.unwrap(), 3 << 20);
    let read = ReadFile { path: "/root/file".into(), offset: 0, length: None };
    let download = machine.agent.read_file(&read).await.unwrap();
    assert_eq!(download.collect(4 << 20).await.unwrap(), content);
    life::check_clock(&machine.agent).await;
    lab.destroy(&spec, machine).await;
}

/// A kernel that is killed behind the service's back is noticed, and how it ended is told.
pub(crate) async fn a_killed_kernel_is_noticed(lab: &Lab) {
    let spec = lab.spec();
    let machine = lab.start(&spec).await;
    let exited = machine.exited();
    let killed = Instant::now();
    kill(machine.record.pid);
    let exit = tokio::time::timeout(PATIENCE, exited).await.expect("the end is noticed");
    eprintln!("noticed after {:?}", killed.elapsed());
    assert_eq!(exit.reason, ExitReason::Signalled { signal: 9 });
    assert!(machine.has_exited());
    assert_eq!(machine.exited().await, exit, "told again to whoever asks again");
    lab.destroy(&spec, machine).await;
}

/// A guest that switches itself off is told from one that was killed.
pub(crate) async fn a_guest_may_end_itself(lab: &Lab) {
    let spec = lab.spec();
    let machine = lab.start(&spec).await;
    machine.agent.shutdown().await.unwrap();
    let exit = tokio::time::timeout(PATIENCE, machine.exited()).await.expect("the end is noticed");
    assert_eq!(exit.reason, ExitReason::Exited { status: 0 }, "{}", exit.console);
    lab.destroy(&spec, machine).await;
}

/// A start whose caller goes away at any moment leaves nothing, with or without a destroy after it.
pub(crate) async fn a_cancelled_start_leaves_nothing(lab: &Lab) {
    for milliseconds in [0, 1, 3, 6, 10, 15, 20, 40, 80, 150, 250, 400] {
        let spec = lab.spec();
        let patience = Duration::from_millis(milliseconds);
        let started = tokio::time::timeout(patience, lab.engine.start(&spec, &Origin::Boot)).await;
        if let Ok(started) = started {
            lab.destroy(&spec, started.unwrap()).await;
            continue;
        }
        if milliseconds % 2 == 0 {
            lab.engine.destroy(&spec, None).await.unwrap();
            assert_eq!(lab.artefacts(&spec).await, [], "cancelled after {milliseconds} ms");
        }
        let deadline = Instant::now() + PATIENCE;
        while !lab.artefacts(&spec).await.is_empty() {
            assert!(Instant::now() < deadline, "cancelled after {milliseconds} ms: {:?}", lab.artefacts(&spec).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A restarted service finds its machines, and they have not noticed.
pub(crate) async fn a_machine_is_adopted_after_a_restart(lab: &Lab) {
    let spec = lab.spec();
    let machine = lab.start(&spec).await;
    let counter = "(i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done) > /dev/null 2>&1 &";
    output(&machine.agent, counter).await;
    let record = serde_json::to_string(&machine.record).unwrap();
    drop(machine);
    let record = serde_json::from_str(&record).unwrap();
    let engine = lab.restarted();
    let adopted = engine.adopt(&spec, &record).await.unwrap_or_else(|error| panic!("{}", lab::chain(&error)));
    assert_eq!(adopted.times, None);
    let before: u64 = output(&adopted.agent, "cat /tmp/count").await.parse().unwrap();
    let until = format!("while [ $(cat /tmp/count) -le {before} ]; do sleep 0.01; done");
    output(&adopted.agent, &until).await;
    let mut wrong = record.clone();
    wrong.start_time += 1;
    let error = engine.adopt(&spec, &wrong).await.unwrap_err();
    assert!(matches!(error, AdoptError::Gone { .. }), "{error}");
    wrong = record.clone();
    wrong.boot_id = "another boot".to_owned();
    let error = engine.adopt(&spec, &wrong).await.unwrap_err();
    assert!(matches!(error, AdoptError::Gone { .. }), "{error}");
    wrong = record.clone();
    wrong.version += 1;
    let error = engine.adopt(&spec, &wrong).await.unwrap_err();
    assert!(matches!(error, AdoptError::Record { .. }), "{error}");
    let exited = adopted.exited();
    drop(adopted);
    engine.destroy(&spec, Some(&record)).await.unwrap();
    tokio::time::timeout(PATIENCE, exited).await.expect("the end is noticed");
    assert_eq!(lab.artefacts(&spec).await, []);
}

/// Two machines share nothing that they can see.
pub(crate) async fn two_machines_know_nothing_of_each_other(lab: &Lab) {
    let specs = [lab.spec(), lab.spec()];
    let (one, other) = tokio::join!(lab.start(&specs[0]), lab.start(&specs[1]));
    output(&one.agent, "echo secret > /root/secret; echo secret > /tmp/secret; sleep 1000 > /dev/null 2>&1 &").await;
    assert_eq!(output(&other.agent, "ls /root/secret /tmp/secret 2>&1 | grep -c 'No such'").await, "2");
    assert_eq!(output(&other.agent, "ps ax | grep -c '[s]leep 1000' || true").await, "0");
    let mut seen = BTreeSet::new();
    for machine in [&one, &other] {
        for question in ["hostname", "cat /proc/sys/kernel/random/boot_id", "head -c 32 /dev/urandom | od -An -tx1"] {
            seen.insert(output(&machine.agent, question).await);
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    kill(one.record.pid);
    tokio::time::timeout(PATIENCE, one.exited()).await.expect("the end is noticed");
    assert_eq!(output(&other.agent, "echo still here").await, "still here");
    lab.destroy(&specs[0], one).await;
    lab.destroy(&specs[1], other).await;
}

/// One after the other, twenty times.
pub(crate) async fn machines_come_and_go(lab: &Lab) {
    let mut times = Vec::new();
    for _ in 0..20 {
        let spec = lab.spec();
        let machine = lab.start(&spec).await;
        assert_eq!(output(&machine.agent, "echo hello").await, "hello");
        times.push(machine.times.expect("it was started"));
        lab.destroy(&spec, machine).await;
    }
    let median = |part: fn(&hutch_engine::machine::StartTimes) -> Duration| {
        let mut parts: Vec<Duration> = times.iter().map(part).collect();
        parts.sort();
        parts[parts.len() / 2]
    };
    let (launch, boot, configure) = (median(|t| t.launch), median(|t| t.boot), median(|t| t.configure));
    eprintln!(
        "p50 of 20: launch {launch:?}, boot {boot:?}, configure {configure:?}, in all {:?}",
        median(|t| t.total())
    );
}

/// Eight at the same time.
pub(crate) async fn many_machines_start_at_once(lab: &Lab) {
    let specs: Vec<_> = (0..8).map(|_| lab.spec()).collect();
    let machines: Vec<Machine> = join_all(specs.iter().map(|spec| lab.start(spec))).await;
    let names = join_all(machines.iter().map(|machine| output(&machine.agent, "hostname"))).await;
    assert_eq!(names, specs.iter().map(|spec| spec.hostname.clone()).collect::<Vec<_>>());
    join_all(specs.iter().zip(machines).map(|(spec, machine)| lab.destroy(spec, machine))).await;
}

/// A machine in trouble is its own trouble only, and can still be removed.
pub(crate) async fn a_noisy_machine_disturbs_nobody(lab: &Lab) {
    let specs = [lab.spec(), lab.spec()];
    let (noisy, quiet) = tokio::join!(lab.start(&specs[0]), lab.start(&specs[1]));
    let bomb = Exec::shell("bomb() { bomb | bomb & }; bomb; sleep 1000");
    let hog = Exec::shell("exec python3 -c 'hog = [bytearray(1 << 20) for _ in iter(int, 1)]'");
    let bomb = noisy.agent.exec(&bomb).await.unwrap();
    let hog = noisy.agent.exec(&hog).await.unwrap();
    let answered = async {
        for round in 0..20 {
            assert_eq!(output(&quiet.agent, &format!("echo {round}")).await, round.to_string());
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("the other machine answers");
    assert!(!quiet.has_exited());
    drop((bomb, hog));
    lab.destroy(&specs[0], noisy).await;
    assert_eq!(shell(&quiet.agent, "exit 3").await.ended.outcome, hutch_protocol::exec::Outcome::Exited { code: 3 });
    lab.destroy(&specs[1], quiet).await;
}

/// What is on the host can be listed and removed by someone who knows nothing of its owner.
pub(crate) async fn every_artefact_is_listed_and_can_be_removed(lab: &Lab) {
    let spec = lab.spec();
    let machine = lab.start(&spec).await;
    output(&machine.agent, "sleep 1000 > /dev/null 2>&1 &").await;
    let artefacts = lab.artefacts(&spec).await;
    let has = |wanted: fn(&ArtefactKind) -> bool| artefacts.iter().any(|artefact| wanted(&artefact.kind));
    assert!(has(|kind| matches!(kind, ArtefactKind::Process { .. })), "{artefacts:?}");
    assert!(has(|kind| matches!(kind, ArtefactKind::Cgroup { .. })), "{artefacts:?}");
    assert!(has(|kind| matches!(kind, ArtefactKind::Socket { .. })), "{artefacts:?}");
    let own = ArtefactKind::Process { pid: machine.record.pid, start_time: machine.record.start_time };
    assert!(artefacts.iter().any(|artefact| artefact.kind == own), "{artefacts:?}");
    let auditor = lab.restarted();
    for artefact in &artefacts {
        auditor.remove_artefact(artefact).await.unwrap_or_else(|error| panic!("{}", lab::chain(&error)));
        auditor.remove_artefact(artefact).await.expect("a second time does nothing");
    }
    tokio::time::timeout(PATIENCE, machine.exited()).await.expect("the end is noticed");
    // Its end leaves the console's log, which is an artefact like any other.
    for artefact in lab.artefacts(&spec).await {
        auditor.remove_artefact(&artefact).await.unwrap();
    }
    assert_eq!(lab.artefacts(&spec).await, []);
}

/// Ends a process as no service would.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
