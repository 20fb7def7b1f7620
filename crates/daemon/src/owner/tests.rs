//! The sagas against a host in memory: every step × killed there, failed there.

mod interleavings;
mod saving;

use std::sync::Arc;

use hutch_api::{Operations as _, SandboxReference, SandboxStatus};
use hutch_units::SandboxId;

use crate::audit;
use crate::config::OnStop;
use crate::lifecycle::State;
use crate::metrics::Count;
use crate::store::{SandboxRow, query};
use crate::tests::{Fault, Incarnation, Life, Point, request};

const CREATE: [Point; 6] =
    [Point::DiskBefore, Point::DiskMade, Point::StartBefore, Point::StartCgroup, Point::StartProcess, Point::StartDone];
const DESTROY: [Point; 3] = [Point::DestroyBefore, Point::DestroyProcess, Point::DestroyDone];

/// What must hold whenever a daemon is at rest.
fn check(life: &Life, daemon: &Incarnation) -> Vec<SandboxRow> {
    let rows = daemon.settled();
    let running: Vec<SandboxId> = rows.iter().filter(|row| row.state == State::Running).map(|row| row.id).collect();
    let mut machines = life.host.machines();
    machines.sort();
    let mut expected = running.clone();
    expected.sort();
    assert_eq!(machines, expected, "the machines on the host are those of the running sandboxes");
    for row in &rows {
        let directory = life.data().sandbox(row.id);
        let is_there = matches!(row.state, State::Running | State::Paused | State::Error);
        assert_eq!(directory.exists(), is_there, "{:?} {}", row.state, directory.display());
        assert_eq!(row.slot.is_some(), is_there, "{row:?}");
        assert!(is_there || row.ended_at.is_some(), "{row:?}");
        let saved = row.pause.map(|number| life.data().pause(row.id, number));
        assert!(saved.is_none_or(|saved| saved.join("snapshot.json").exists()), "{row:?}");
        assert!(row.state != State::Paused || row.pause.is_some(), "{row:?}");
    }
    let findings = daemon.run(async {
        let core = daemon.core();
        audit::take(&core.engine, &core.data, || audit::held_by_store(&core.store)).await.unwrap()
    });
    let orphans: Vec<_> = findings.iter().filter(|finding| finding.owner.is_none()).collect();
    assert!(orphans.is_empty(), "{orphans:?}");
    let promised: u64 = running.len() as u64 * 256;
    assert_eq!(daemon.core().capacity.free_mib(), life.bounds.memory_mib - promised, "memory is given back");
    rows
}

/// What must hold at any instant: whatever lies on the host has a row that holds it.
fn everything_is_recorded(life: &Life, daemon: &Incarnation) {
    let held = daemon.run(audit::held_by_store(&daemon.core().store)).unwrap();
    for artefact in life.host.all() {
        let owner = artefact.sandbox.expect("nothing stray was put there").to_string();
        assert!(held.contains(&owner), "{artefact:?} was made before it was recorded");
    }
    for directory in [life.data().sandboxes(), life.data().snapshots()] {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let id = name.split('.').next().unwrap();
            assert!(held.contains(id), "{name} was made before it was recorded");
        }
    }
}

fn begin_create(daemon: &Incarnation, key: Option<&str>) {
    let (contract, caller) = (daemon.daemon.clone(), daemon.caller.clone());
    let request = hutch_api::CreateSandbox { idempotency_key: key.map(str::to_owned), ..request() };
    daemon.spawn(async move { drop(contract.create_sandbox(&caller, request).await) });
}

fn create(daemon: &Incarnation) -> SandboxId {
    daemon.run(daemon.daemon.create_sandbox(&daemon.caller, request())).unwrap().sandbox.id
}

fn begin_destroy(daemon: &Incarnation, id: SandboxId) {
    let (contract, caller) = (daemon.daemon.clone(), daemon.caller.clone());
    let reference = SandboxReference::Id(id);
    daemon.spawn(async move { drop(contract.destroy_sandbox(&caller, &reference).await) });
}

fn destroy(daemon: &Incarnation, id: SandboxId) -> SandboxStatus {
    let reference = SandboxReference::Id(id);
    daemon.run(daemon.daemon.destroy_sandbox(&daemon.caller, &reference)).unwrap().status
}

#[test]
fn a_create_that_is_killed_at_any_step_is_undone() {
    for point in CREATE {
        let life = Life::new();
        let first = life.start();
        let bystander = create(&first);
        life.host.arm(point, Fault::Halt);
        begin_create(&first, Some("k"));
        life.host.until_halted(point);
        everything_is_recorded(&life, &first);
        first.kill();
        life.host.disarm();

        let second = life.start();
        let rows = check(&life, &second);
        let victim = rows.iter().find(|row| row.id != bystander).unwrap();
        assert_eq!(victim.state, State::Failed, "{point:?}");
        assert!(victim.reason.as_ref().unwrap().contains("service stopped"), "{point:?}: {:?}", victim.reason);
        assert_eq!(life.host.machines(), [bystander], "{point:?}: the other lives on");
        // The idempotency key is free again: the retry makes a sandbox.
        let request = hutch_api::CreateSandbox { idempotency_key: Some("k".to_owned()), ..request() };
        let retried = second.run(second.daemon.create_sandbox(&second.caller, request)).unwrap();
        assert_eq!((retried.sandbox.status, retried.replayed), (SandboxStatus::Running, None), "{point:?}");
        second.kill();
    }
}

#[test]
fn a_create_that_fails_at_any_step_is_undone_at_once() {
    for point in CREATE {
        let life = Life::new();
        let daemon = life.start();
        life.host.arm(point, Fault::Fail(1));
        let error = daemon.run(daemon.daemon.create_sandbox(&daemon.caller, request())).unwrap_err();
        assert!(error.message.contains("did not start"), "{point:?}: {error}");
        let rows = check(&life, &daemon);
        assert_eq!(rows.iter().map(|row| row.state).collect::<Vec<_>>(), [State::Failed], "{point:?}");
        assert_eq!(daemon.core().metrics.counted(Count::CreateFailed), 1);
        create(&daemon);
        check(&life, &daemon);
        daemon.kill();
    }
}

#[test]
fn a_destroy_that_is_killed_at_any_step_is_finished() {
    for point in DESTROY {
        let life = Life::new();
        let first = life.start();
        let (victim, bystander) = (create(&first), create(&first));
        life.host.arm(point, Fault::Halt);
        begin_destroy(&first, victim);
        life.host.until_halted(point);
        everything_is_recorded(&life, &first);
        first.kill();
        life.host.disarm();

        let second = life.start();
        let rows = check(&life, &second);
        let state = |id| rows.iter().find(|row| row.id == id).unwrap().state;
        assert_eq!((state(victim), state(bystander)), (State::Destroyed, State::Running), "{point:?}");
        second.kill();
    }
}

#[test]
fn a_destroy_that_fails_at_any_step_is_tried_until_it_is_done() {
    for point in DESTROY {
        let life = Life::new();
        let daemon = life.start();
        let id = create(&daemon);
        life.host.arm(point, Fault::Fail(3));
        assert_eq!(destroy(&daemon, id), SandboxStatus::Destroyed, "{point:?}");
        check(&life, &daemon);
        daemon.kill();
    }
}

#[test]
fn an_undo_that_is_killed_is_undone_by_the_next_start() {
    for point in DESTROY {
        let life = Life::new();
        let first = life.start();
        life.host.arm(Point::StartProcess, Fault::Halt);
        begin_create(&first, None);
        life.host.until_halted(Point::StartProcess);
        first.kill();
        life.host.disarm();
        life.host.arm(point, Fault::Halt);
        let second = life.open();
        let core = Arc::clone(second.core());
        second.spawn(async move { drop(crate::recovery::take_over(&core).await) });
        life.host.until_halted(point);
        second.kill();
        life.host.disarm();

        let third = life.start();
        let rows = check(&life, &third);
        assert_eq!(rows[0].state, State::Failed, "{point:?}");
        third.kill();
    }
}

#[test]
fn a_restart_adopts_what_lives_and_fails_what_died() {
    let life = Life::new();
    let first = life.start();
    let (living, dying) = (create(&first), create(&first));
    first.kill();
    life.host.kill(dying);
    let second = life.start();
    let rows = check(&life, &second);
    let row = |id| rows.iter().find(|row| row.id == id).unwrap();
    assert_eq!((row(living).state, row(dying).state), (State::Running, State::Failed));
    assert!(row(dying).reason.as_ref().unwrap().contains("while the service did not run"));
    assert_eq!(second.core().metrics.counted(Count::Adopted), 1);
    second.kill();
}

#[test]
fn a_death_is_seen_and_the_host_is_clean() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    life.host.kill(id);
    daemon.until(id, State::Failed);
    let rows = check(&life, &daemon);
    assert_eq!(rows[0].state, State::Failed);
    assert_eq!(rows[0].reason.as_deref(), Some("the guest's kernel was killed by signal 9"));
    // Destroying what has failed gives it its last word.
    assert_eq!(destroy(&daemon, id), SandboxStatus::Destroyed);
    assert_eq!(destroy(&daemon, id), SandboxStatus::Destroyed);
    assert_eq!(check(&life, &daemon)[0].state, State::Destroyed);
    daemon.kill();
}

#[test]
fn a_lost_connection_is_made_again() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    let adopted = || daemon.core().metrics.counted(Count::Adopted);
    assert_eq!(adopted(), 0);
    life.host.cut(id);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while adopted() == 0 {
        assert!(std::time::Instant::now() < deadline, "the machine was not found again");
        std::thread::yield_now();
    }
    assert_eq!(check(&life, &daemon)[0].state, State::Running);
    daemon.kill();
}

#[test]
fn an_agent_that_fails_for_a_while_is_waited_for() {
    let life = Life::new();
    let first = life.start();
    create(&first);
    first.kill();
    life.host.arm(Point::AdoptBefore, Fault::Fail(3));
    let second = life.start();
    assert_eq!(check(&life, &second)[0].state, State::Running);
    second.kill();
}

#[test]
fn a_sandbox_can_be_destroyed_while_it_is_made_and_while_it_is_looked_for() {
    let life = Life::new();
    let daemon = life.start();
    life.host.arm(Point::StartProcess, Fault::Halt);
    begin_create(&daemon, None);
    life.host.until_halted(Point::StartProcess);
    let id = daemon.rows()[0].id;
    assert_eq!(destroy(&daemon, id), SandboxStatus::Destroyed);
    life.host.disarm();
    check(&life, &daemon);
    let id = create(&daemon);
    daemon.kill();
    life.host.silence(&[id]);
    let second = life.start();
    assert_eq!(destroy(&second, id), SandboxStatus::Destroyed);
    check(&life, &second);
    second.kill();
}

#[test]
fn what_belongs_to_nobody_is_removed_at_the_start() {
    let life = Life::new();
    let first = life.start();
    let kept = create(&first);
    first.kill();
    life.host.stray("/cgroup/stray", None);
    life.host.stray("/cgroup/other", Some(SandboxId::generate()));
    std::fs::create_dir(life.data().sandboxes().join("sb-stray")).unwrap();
    std::fs::write(life.data().sandboxes().join("file"), "x").unwrap();
    let second = life.start();
    assert_eq!(second.core().metrics.counted(Count::OrphanRemoved), 4);
    check(&life, &second);
    assert_eq!(life.host.machines(), [kept]);
    second.kill();
}

#[test]
fn stopping_leaves_the_machines_or_takes_them_down_as_told() {
    let life = Life::new();
    let first = life.start();
    let id = create(&first);
    first.run(first.started.stop(OnStop::Leave));
    assert!(first.core().registry.all().is_empty());
    assert_eq!((life.host.machines(), first.rows()[0].state), (vec![id], State::Running));
    first.kill();
    let second = life.start();
    assert_eq!(check(&life, &second)[0].state, State::Running);
    second.run(second.started.stop(OnStop::Destroy));
    assert_eq!((life.host.machines(), second.rows()[0].state), (vec![], State::Destroyed));
    second.kill();
}

#[test]
fn the_trail_tells_the_whole_life() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    destroy(&daemon, id);
    let trail = daemon.run(daemon.core().store.read("trail", move |db| query::transitions_of(db, &id.to_string())));
    let events: Vec<_> = trail.unwrap().into_iter().map(|row| format!("{} {}", row.event, row.to)).collect();
    assert_eq!(events, ["created creating", "started running", "destroy-asked destroying", "destroyed destroyed"]);
    daemon.kill();
}

#[test]
fn three_hundred_sandboxes_do_not_keep_a_start_from_being_ready() {
    let life = Life::new();
    let first = life.start();
    let ids = first.run(async {
        let one = |_| async { first.daemon.create_sandbox(&first.caller, request()).await.unwrap().sandbox.id };
        futures_util::future::join_all((0..300).map(one)).await
    });
    first.kill();
    life.host.silence(&ids[..5]);
    let began = std::time::Instant::now();
    let second = life.start();
    let took = began.elapsed();
    println!("ready {} ms after the start, with 300 machines of which 5 do not answer", took.as_millis());
    // Ten times what it may take on an idle machine: readiness must not wait for those that do not answer.
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    assert_eq!(second.core().metrics.counted(Count::Adopted), 295);
    second.kill();
}
