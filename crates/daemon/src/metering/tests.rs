//! Idleness and the ledger, through the daemon, on a host in memory whose clock is turned by hand.

use std::time::Duration;

use hutch_api::{
    CreateSandbox, Operations as _, PageRequest, Period, SandboxReference, SandboxUsage, Until, UsageQuery,
};
use hutch_units::SandboxId;

use crate::lifecycle::State;
use crate::metering;
use crate::store::{UsageWanted, query};
use crate::sweep;
use crate::tests::{Fault, Incarnation, Life, Point, request};

fn create(daemon: &Incarnation, pause: Option<u32>, destroy: Option<u32>) -> SandboxId {
    let request = CreateSandbox { auto_pause_after_seconds: pause, auto_destroy_after_seconds: destroy, ..request() };
    daemon.run(daemon.daemon.create_sandbox(&daemon.caller, request)).unwrap().sandbox.id
}

/// Time passes as the daemon sees it: second by second, with a look at each.
fn pass(life: &Life, daemon: &Incarnation, seconds: u64) {
    for _ in 0..seconds {
        life.clock.advance(Duration::from_secs(1));
        daemon.run(sweep::expire(daemon.core())).unwrap();
        daemon.run(metering::look(daemon.core())).unwrap();
    }
}

fn used(daemon: &Incarnation, id: SandboxId) -> SandboxUsage {
    let reference = SandboxReference::Id(id);
    daemon.run(daemon.daemon.sandbox_usage(&daemon.caller, &reference, Period::default())).unwrap()
}

fn pause(daemon: &Incarnation, id: SandboxId) {
    daemon.run(daemon.daemon.pause_sandbox(&daemon.caller, &SandboxReference::Id(id), Until::Settled)).unwrap();
}

fn resume(daemon: &Incarnation, id: SandboxId) {
    daemon.run(daemon.daemon.resume_sandbox(&daemon.caller, &SandboxReference::Id(id), Until::Settled)).unwrap();
}

fn state(daemon: &Incarnation, id: SandboxId) -> State {
    daemon.rows().into_iter().find(|row| row.id == id).expect("there is such a row").state
}

#[test]
fn an_idle_sandbox_pauses_and_one_that_works_does_not() {
    let life = Life::new();
    let daemon = life.start();
    let (idle, busy, free) =
        (create(&daemon, Some(60), None), create(&daemon, Some(60), None), create(&daemon, None, None));
    for _ in 0..20 {
        life.host.burn(busy, Duration::from_millis(150));
        pass(&life, &daemon, 5);
    }
    daemon.until(idle, State::Paused);
    let reason = daemon.rows().into_iter().find(|row| row.id == idle).unwrap().reason;
    assert_eq!(reason.as_deref(), Some("idle for 60 seconds"));
    assert_eq!((state(&daemon, busy), state(&daemon, free)), (State::Running, State::Running));
    // Back, it has its time anew, although nothing was done with it since long ago.
    life.clock.advance(Duration::from_secs(3600));
    resume(&daemon, idle);
    pass(&life, &daemon, 59);
    assert_eq!(state(&daemon, idle), State::Running);
    pass(&life, &daemon, 40);
    daemon.until(idle, State::Paused);
    daemon.until(busy, State::Paused);
    daemon.kill();
}

#[test]
fn a_command_that_runs_keeps_its_sandbox() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon, Some(60), Some(120));
    let running = daemon.core().registry.find(id).unwrap().activity.begin();
    pass(&life, &daemon, 600);
    assert_eq!(state(&daemon, id), State::Running);
    drop(running);
    pass(&life, &daemon, 50);
    assert_eq!(state(&daemon, id), State::Running, "the time begins with the end of the command");
    pass(&life, &daemon, 20);
    daemon.until(id, State::Paused);
    pass(&life, &daemon, 60);
    daemon.until(id, State::Destroyed);
    daemon.kill();
}

#[test]
fn what_fell_due_while_nobody_looked_is_done_and_what_was_put_off_is_not() {
    let life = Life::new();
    let first = life.start();
    let (idle, renewed) = (create(&first, None, Some(3600)), create(&first, None, Some(3600)));
    pause(&first, idle);
    pause(&first, renewed);
    let update =
        hutch_api::UpdateSandbox { auto_destroy_after_seconds: Some(36_000), ..hutch_api::UpdateSandbox::default() };
    first.run(first.daemon.update_sandbox(&first.caller, &SandboxReference::Id(renewed), update)).unwrap();
    first.kill();
    life.clock.advance(Duration::from_secs(4000));
    let second = life.start();
    pass(&life, &second, 1);
    second.until(idle, State::Destroyed);
    assert_eq!(state(&second, renewed), State::Paused);
    second.kill();
}

#[test]
fn the_ledger_is_exact_across_pauses_kills_and_the_end() {
    let life = Life::new();
    let first = life.start();
    let id = create(&first, None, None);
    life.host.burn(id, Duration::from_secs(60));
    life.clock.advance(Duration::from_secs(100));
    pause(&first, id);
    // A paused hour counts no active second.
    life.clock.advance(Duration::from_secs(3600));
    let seen = used(&first, id).usage;
    assert_eq!((seen.active_seconds, seen.paused_seconds, seen.cpu_seconds), (100.0, 3600.0, 60.0));
    let now = life.clock.now();
    let all = first.run(first.core().store.read("sum up", move |db| query::usage_of_all(db, now))).unwrap();
    assert_eq!(all, seen, "one sandbox is all");
    assert_eq!(seen.memory_mib_seconds, 100.0 * 256.0);
    resume(&first, id);
    life.clock.advance(Duration::from_secs(10));
    life.host.burn(id, Duration::from_secs(5));
    first.kill();
    // Without a daemon it runs on.
    life.clock.advance(Duration::from_secs(500));
    life.host.burn(id, Duration::from_secs(7));
    let second = life.start();
    let seen = used(&second, id).usage;
    assert_eq!((seen.active_seconds, seen.paused_seconds, seen.cpu_seconds), (610.0, 3600.0, 72.0));
    life.clock.advance(Duration::from_secs(5));
    life.host.burn(id, Duration::from_secs(1));
    second.run(second.daemon.destroy_sandbox(&second.caller, &SandboxReference::Id(id))).unwrap();
    life.clock.advance(Duration::from_secs(86_400));
    let seen = used(&second, id).usage;
    assert_eq!((seen.active_seconds, seen.paused_seconds, seen.cpu_seconds), (615.0, 3600.0, 73.0));
    // What is gone is still in the books when its row is forgotten.
    second.run(sweep::forget(second.core())).unwrap();
    assert!(second.rows().is_empty());
    assert_eq!((used(&second, id).usage, used(&second, id).status), (seen, None));
    let report = UsageQuery { period: Period::default(), sandbox: None, page: PageRequest { limit: 50, offset: 0 } };
    let report = second.run(second.daemon.usage(&second.caller, report)).unwrap();
    assert_eq!((report.total, report.sandboxes.len()), (seen, 1));
    second.kill();
}

#[test]
fn a_machine_that_is_found_gone_counts_until_soon_after_it_was_seen() {
    let life = Life::new();
    let first = life.start();
    let id = create(&first, None, None);
    life.host.burn(id, Duration::from_secs(3));
    pass(&life, &first, 30);
    first.kill();
    life.clock.advance(Duration::from_secs(5));
    life.host.kill(id);
    life.clock.advance(Duration::from_secs(86_400));
    let second = life.start();
    second.until(id, State::Failed);
    let seen = used(&second, id).usage;
    assert!((30.0..=50.0).contains(&seen.active_seconds), "{seen:?}");
    assert_eq!(seen.cpu_seconds, 3.0, "the count outlives the machine");
    second.kill();
}

#[test]
fn a_pause_that_is_killed_at_any_step_counts_once() {
    for point in [Point::SaveBefore, Point::SaveWritten, Point::SaveDone, Point::DestroyBefore, Point::DestroyDone] {
        let life = Life::new();
        let first = life.start();
        let id = create(&first, None, None);
        life.host.burn(id, Duration::from_secs(2));
        life.clock.advance(Duration::from_secs(10));
        life.host.arm(point, Fault::Halt);
        let (contract, caller) = (first.daemon.clone(), first.caller.clone());
        let reference = SandboxReference::Id(id);
        first.spawn(async move { drop(contract.pause_sandbox(&caller, &reference, Until::Settled).await) });
        life.host.until_halted(point);
        first.kill();
        life.host.disarm();
        let second = life.start();
        second.until(id, State::Paused);
        let segments = second.run(second.core().store.read("read", |db| query::usage(db, &UsageWanted::default())));
        let segments = segments.unwrap();
        assert!(
            segments.windows(2).all(|pair| pair[0].ended_at == Some(pair[1].started_at)),
            "{point:?}: {segments:?}"
        );
        let seen = used(&second, id).usage;
        assert_eq!((seen.active_seconds, seen.cpu_seconds), (10.0, 2.0), "{point:?}");
        second.kill();
    }
}
