//! Templates and prepared machines against a host in memory: every step × killed there, failed there.

use std::time::{Duration, Instant};

use hutch_api::{CreateSandbox, Operations as _, SandboxReference};
use hutch_units::SandboxId;

use crate::audit;
use crate::config::{OnStop, Preparation};
use crate::lifecycle::State;
use crate::metrics::Count;
use crate::store::{SlotRow, TemplateRow, TemplateState, query};
use crate::tests::{Fault, Incarnation, Life, Point, request};

/// Where making a template can stop.
const MAKE: [Point; 7] = [
    Point::DiskBefore,
    Point::DiskMade,
    Point::TemplateBefore,
    Point::TemplateDone,
    Point::DestroyBefore,
    Point::DestroyProcess,
    Point::DestroyDone,
];
/// Where preparing a machine can stop.
const PREPARE: [Point; 4] = [Point::StartBefore, Point::StartCgroup, Point::StartProcess, Point::StartDone];
/// Where a sandbox can stop that takes a machine over.
const TAKE: [Point; 2] = [Point::ActivateBefore, Point::ActivateDone];

/// Templates as asked for, no machine waits.
const CLONES: Preparation =
    Preparation { templates: 4, templates_bytes: 1 << 40, templates_at_start: 0, pool: 0, pool_of_a_kind: 0 };
/// Templates as asked for, and one machine waits.
const POOL: Preparation = Preparation { pool: 1, pool_of_a_kind: 1, ..CLONES };

fn life(preparation: Preparation) -> Life {
    let mut life = Life::new();
    life.preparation = preparation;
    life
}

/// A request for a sandbox whose disk has the usual size.
fn usual() -> CreateSandbox {
    CreateSandbox { disk_mib: None, ..request() }
}

fn create(daemon: &Incarnation) -> SandboxId {
    daemon.run(daemon.daemon.create_sandbox(&daemon.caller, usual())).unwrap().sandbox.id
}

fn begin_create(daemon: &Incarnation) {
    let (contract, caller) = (daemon.daemon.clone(), daemon.caller.clone());
    daemon.spawn(async move { drop(contract.create_sandbox(&caller, usual()).await) });
}

fn destroy(daemon: &Incarnation, id: SandboxId) {
    daemon.run(daemon.daemon.destroy_sandbox(&daemon.caller, &SandboxReference::Id(id))).unwrap();
}

fn templates(daemon: &Incarnation) -> Vec<TemplateRow> {
    daemon.run(daemon.core().store.read("templates", query::templates)).unwrap()
}

fn slots(daemon: &Incarnation) -> Vec<SlotRow> {
    daemon.run(daemon.core().store.read("slots", query::slots)).unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn counted(daemon: &Incarnation, count: Count) -> u64 {
    daemon.core().metrics.counted(count)
}

/// A daemon with a template, and with a machine that waits when one should.
fn warm(life: &Life) -> Incarnation {
    let daemon = life.start();
    let first = create(&daemon);
    assert_eq!(counted(&daemon, Count::FromBoot), 1);
    until("a template", || counted(&daemon, Count::TemplateMade) == 1);
    destroy(&daemon, first);
    until_waiting(life, &daemon);
    daemon
}

fn until_waiting(life: &Life, daemon: &Incarnation) {
    until("a machine that waits", || daemon.core().pool.ready() >= life.preparation.pool as usize);
}

/// What must hold whenever a daemon is at rest: everything on the host has one owner, and what waits is alive.
fn check(life: &Life, daemon: &Incarnation) {
    let rows = daemon.settled();
    let running = rows.iter().filter(|row| row.state == State::Running).map(|row| row.id);
    let waiting = slots(daemon);
    let mut expected: Vec<_> = running.chain(waiting.iter().map(|slot| slot.id)).collect();
    let mut machines = life.host.machines();
    expected.sort();
    machines.sort();
    assert_eq!(machines, expected, "the machines on the host are those of sandboxes and those that wait");
    let mut directories: Vec<String> = names(&life.data().sandboxes());
    directories.sort();
    assert_eq!(directories, expected.iter().map(ToString::to_string).collect::<Vec<_>>());
    let mut keys: Vec<_> = templates(daemon).into_iter().map(|row| row.key).collect();
    let mut files = names(&life.data().templates());
    keys.sort();
    files.sort();
    assert_eq!(files, keys, "a directory for each template");
    assert!(templates(daemon).iter().all(|row| row.state == TemplateState::Ready && row.slot.is_none()));
    everything_is_owned(daemon);
}

fn everything_is_owned(daemon: &Incarnation) {
    let findings = daemon.run(async {
        let core = daemon.core();
        audit::take(&core.engine, &core.data, || audit::held_by_store(&core.store)).await.unwrap()
    });
    let orphans: Vec<_> = findings.iter().filter(|finding| finding.owner.is_none()).collect();
    assert!(orphans.is_empty(), "{orphans:?}");
}

fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn the_first_boots_the_next_is_a_clone_and_with_a_pool_it_takes_a_machine_over() {
    let clones = life(CLONES);
    let daemon = warm(&clones);
    create(&daemon);
    check(&clones, &daemon);
    assert_eq!((counted(&daemon, Count::FromClone), counted(&daemon, Count::FromBoot)), (1, 1));
    daemon.kill();

    let pool = life(POOL);
    let daemon = warm(&pool);
    let waiting = slots(&daemon)[0].clone();
    let id = create(&daemon);
    assert_eq!(id, waiting.id, "the sandbox is the machine that waited");
    assert_eq!(counted(&daemon, Count::FromPool), 1);
    let row = daemon.rows().into_iter().find(|row| row.id == id).unwrap();
    assert_eq!((row.slot, row.template), (Some(waiting.slot), Some(waiting.template)));
    until_waiting(&pool, &daemon);
    check(&pool, &daemon);
    daemon.kill();
}

#[test]
fn making_a_template_can_be_killed_anywhere() {
    for point in MAKE {
        let life = life(CLONES);
        let first = life.start();
        // The sandbox that asks for the template has passed these points before.
        let asking = create_without_template(&life, &first);
        life.host.arm(point, Fault::Halt);
        begin_create(&first);
        life.host.until_halted(point);
        everything_is_owned(&first);
        first.kill();
        life.host.disarm();
        let second = life.start();
        check(&life, &second);
        assert!(templates(&second).is_empty(), "{point:?}");
        assert!(life.host.machines().contains(&asking), "{point:?}: the other lives on");
        second.kill();
    }
}

/// A sandbox for which no template is made: nobody asks twice for its size of disk.
fn create_without_template(life: &Life, daemon: &Incarnation) -> SandboxId {
    let odd = CreateSandbox { disk_mib: Some(100), ..request() };
    let id = daemon.run(daemon.daemon.create_sandbox(&daemon.caller, odd)).unwrap().sandbox.id;
    assert!(life.host.machines().contains(&id) && templates(daemon).is_empty());
    id
}

#[test]
fn a_template_that_fails_leaves_nothing_and_sandboxes_boot() {
    for point in [Point::TemplateBefore, Point::TemplateDone] {
        let life = life(CLONES);
        let daemon = life.start();
        life.host.arm(point, Fault::Fail(1));
        create(&daemon);
        until("the failure", || counted(&daemon, Count::TemplateFailed) == 1);
        create(&daemon);
        check(&life, &daemon);
        assert_eq!((counted(&daemon, Count::FromBoot), templates(&daemon).len()), (2, 0), "{point:?}");
        daemon.kill();
    }
}

#[test]
fn preparing_and_taking_over_can_be_killed_anywhere() {
    for point in PREPARE {
        let life = life(POOL);
        let first = warm(&life);
        life.host.arm(point, Fault::Halt);
        let id = create(&first);
        life.host.until_halted(point);
        everything_is_owned(&first);
        first.kill();
        life.host.disarm();
        let second = life.start();
        assert_eq!(counted(&second, Count::Adopted), 1, "{point:?}: the sandbox lives");
        check(&life, &second);
        destroy(&second, id);
        check(&life, &second);
        second.kill();
    }
    for point in TAKE {
        let life = life(POOL);
        let first = warm(&life);
        life.host.arm(point, Fault::Halt);
        begin_create(&first);
        life.host.until_halted(point);
        everything_is_owned(&first);
        first.kill();
        life.host.disarm();
        let second = life.start();
        check(&life, &second);
        let states: Vec<_> = second.rows().iter().map(|row| row.state).collect();
        assert!(states.contains(&State::Failed), "{point:?}: {states:?}");
        assert!(slots(&second).is_empty() && life.host.machines().is_empty(), "{point:?}");
        second.kill();
    }
}

#[test]
fn what_does_not_work_is_tried_another_way() {
    for point in TAKE {
        let life = life(POOL);
        let daemon = warm(&life);
        life.host.arm(point, Fault::Fail(1));
        create(&daemon);
        assert_eq!(counted(&daemon, Count::FromClone), 1, "{point:?}");
        until_waiting(&life, &daemon);
        check(&life, &daemon);
        daemon.kill();
    }
    for point in PREPARE {
        let life = life(CLONES);
        let daemon = warm(&life);
        life.host.arm(point, Fault::Fail(1));
        create(&daemon);
        assert_eq!(counted(&daemon, Count::FromBoot), 2, "{point:?}");
        check(&life, &daemon);
        daemon.kill();
    }
}

#[test]
fn a_machine_that_died_while_it_waited_is_not_given_out() {
    let life = life(POOL);
    let daemon = warm(&life);
    let dead = slots(&daemon)[0].id;
    life.host.kill(dead);
    assert_ne!(create(&daemon), dead);
    until_waiting(&life, &daemon);
    until("its removal", || slots(&daemon).iter().all(|slot| slot.id != dead));
    until_waiting(&life, &daemon);
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn stopping_removes_what_waits_and_the_next_start_finds_the_template() {
    let life = life(POOL);
    let first = warm(&life);
    first.run(first.started.stop(OnStop::Leave));
    assert!(slots(&first).is_empty() && life.host.machines().is_empty());
    first.kill();
    let second = life.start();
    create(&second);
    assert_eq!((counted(&second, Count::FromClone), counted(&second, Count::FromBoot)), (1, 0));
    until_waiting(&life, &second);
    check(&life, &second);
    second.kill();
}

#[test]
fn a_template_is_removed_only_when_nobody_needs_it() {
    let life = life(CLONES);
    let daemon = warm(&life);
    let id = create(&daemon);
    let key = templates(&daemon)[0].key.clone();
    daemon.core().templates.reject(&key);
    let collect = || daemon.run(super::garbage::collect(daemon.core())).unwrap();
    collect();
    assert_eq!(templates(&daemon).len(), 1, "a sandbox is stored as the difference to it");
    destroy(&daemon, id);
    collect();
    check(&life, &daemon);
    assert!(templates(&daemon).is_empty());
    create(&daemon);
    until("a new one", || counted(&daemon, Count::TemplateMade) == 2);
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn the_ones_used_least_recently_go_first() {
    let life = life(Preparation { templates: 1, ..CLONES });
    let daemon = warm(&life);
    life.clock.advance(Duration::from_secs(10));
    let other = CreateSandbox { shape: "s-1vcpu-512mb".to_owned(), ..usual() };
    let id = daemon.run(daemon.daemon.create_sandbox(&daemon.caller, other)).unwrap().sandbox.id;
    until("the second", || counted(&daemon, Count::TemplateMade) == 2);
    destroy(&daemon, id);
    daemon.run(super::garbage::collect(daemon.core())).unwrap();
    let left: Vec<_> = templates(&daemon).into_iter().map(|row| row.memory_mib).collect();
    assert_eq!(left, [512]);
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn what_is_in_the_way_after_a_kill_in_the_midst_of_a_removal_is_removed() {
    for point in [Point::DestroyBefore, Point::DestroyDone] {
        let life = life(POOL);
        let first = warm(&life);
        life.host.arm(point, Fault::Halt);
        first.core().pool.forget(&templates(&first)[0].key);
        life.host.until_halted(point);
        first.kill();
        life.host.disarm();
        std::fs::create_dir(life.data().templates().join("stray.partial")).unwrap();
        let second = life.start();
        check(&life, &second);
        assert!(slots(&second).is_empty(), "{point:?}");
        second.kill();
    }
}
