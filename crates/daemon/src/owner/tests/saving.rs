//! Pause, resume, fork, snapshot and restore against a host in memory: every step × killed there, failed there.

use std::sync::Arc;

use futures_util::StreamExt as _;
use hutch_api::{
    CreateSandbox, CreateSnapshot, Error, ErrorKind, ForkSandbox, Operations as _, SandboxReference, SandboxStatus,
    SandboxView, SnapshotFilter, SnapshotReference, SnapshotView, Until,
};
use hutch_engine::snapshot::Identity;
use hutch_units::{SandboxId, SnapshotId};

use super::{begin_destroy, check, create, destroy, everything_is_recorded};
use crate::lifecycle::State;
use crate::metrics::Count;
use crate::store::query;
use crate::tests::{Fault, Incarnation, Life, Point, request};

const SAVE: [Point; 6] = [
    Point::SaveBefore,
    Point::SaveWritten,
    Point::SaveDone,
    Point::DestroyBefore,
    Point::DestroyProcess,
    Point::DestroyDone,
];
const BACK: [Point; 6] = [
    Point::StartBefore,
    Point::StartCgroup,
    Point::StartProcess,
    Point::StartDone,
    Point::ActivateBefore,
    Point::ActivateDone,
];

pub(super) fn by(id: SandboxId) -> SandboxReference {
    SandboxReference::Id(id)
}

fn pause(daemon: &Incarnation, id: SandboxId) -> Result<SandboxView, Error> {
    daemon.run(daemon.daemon.pause_sandbox(&daemon.caller, &by(id), Until::Settled))
}

fn resume(daemon: &Incarnation, id: SandboxId) -> Result<SandboxView, Error> {
    daemon.run(daemon.daemon.resume_sandbox(&daemon.caller, &by(id), Until::Settled))
}

fn fork(daemon: &Incarnation, id: SandboxId, request: ForkSandbox) -> Result<Vec<SandboxView>, Error> {
    daemon.run(daemon.daemon.fork_sandbox(&daemon.caller, &by(id), request))
}

fn snapshot(daemon: &Incarnation, id: SandboxId, name: Option<&str>) -> Result<SnapshotView, Error> {
    let request = CreateSnapshot { name: name.map(str::to_owned), ..CreateSnapshot::default() };
    daemon.run(daemon.daemon.create_snapshot(&daemon.caller, &by(id), request))
}

fn restore(daemon: &Incarnation, id: SandboxId, snapshot: SnapshotId) -> Result<SandboxView, Error> {
    let snapshot = SnapshotReference::Id(snapshot);
    daemon.run(daemon.daemon.restore_snapshot(&daemon.caller, &by(id), &snapshot))
}

fn snapshots(daemon: &Incarnation) -> Vec<SnapshotView> {
    let page = hutch_api::PageRequest { limit: 500, offset: 0 };
    daemon.run(daemon.daemon.list_snapshots(&daemon.caller, SnapshotFilter::default(), page)).unwrap().data
}

/// Begins something that will not be waited for.
fn begin<F>(daemon: &Incarnation, work: impl FnOnce(crate::operations::Daemon, hutch_api::Caller) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    daemon.spawn(work(daemon.daemon.clone(), daemon.caller.clone()));
}

fn begin_pause(daemon: &Incarnation, id: SandboxId) {
    begin(daemon, |contract, caller| async move {
        drop(contract.pause_sandbox(&caller, &by(id), Until::Settled).await);
    });
}

fn begin_resume(daemon: &Incarnation, id: SandboxId) {
    begin(daemon, |contract, caller| async move {
        drop(contract.resume_sandbox(&caller, &by(id), Until::Settled).await);
    });
}

/// Waits until no snapshot of a fork is left, in the store or in the data directory.
fn without_leftovers(life: &Life, daemon: &Incarnation, named: usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let rows = daemon.run(daemon.core().store.read("all", query::snapshot_ids)).unwrap();
        let files = std::fs::read_dir(life.data().snapshots()).map_or(0, Iterator::count);
        if (rows.len(), files) == (named, named) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{rows:?} and {files} files of snapshots are left");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_guest_has_done_survives_any_number_of_pauses() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    for round in 1..=20 {
        assert_eq!(life.host.work(id), Some(round));
        let view = pause(&daemon, id).unwrap();
        assert!(view.status == SandboxStatus::Paused && view.paused_at.is_some());
        assert_eq!(pause(&daemon, id).unwrap().status, SandboxStatus::Paused, "asking twice is asking once");
        check(&life, &daemon);
        let view = resume(&daemon, id).unwrap();
        assert!(view.status == SandboxStatus::Running && view.last_resumed_at.is_some());
        assert_eq!(resume(&daemon, id).unwrap().status, SandboxStatus::Running);
        assert_eq!((life.host.done(id), life.host.identity(id)), (Some(round), Some(Identity::Same)));
        check(&life, &daemon);
    }
    assert_eq!(destroy(&daemon, id), SandboxStatus::Destroyed);
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn a_pause_that_is_killed_at_any_step_is_finished() {
    for point in SAVE {
        let life = Life::new();
        let first = life.start();
        let (id, bystander) = (create(&first), create(&first));
        life.host.work(id);
        life.host.arm(point, Fault::Halt);
        begin_pause(&first, id);
        life.host.until_halted(point);
        everything_is_recorded(&life, &first);
        first.kill();
        life.host.disarm();
        let second = life.start();
        second.until(id, State::Paused);
        let rows = check(&life, &second);
        assert_eq!(rows.iter().find(|row| row.id == bystander).unwrap().state, State::Running, "{point:?}");
        resume(&second, id).unwrap();
        assert_eq!((life.host.done(id), life.host.identity(id)), (Some(1), Some(Identity::Same)), "{point:?}");
        check(&life, &second);
        second.kill();
    }
}

#[test]
fn a_pause_that_fails_leaves_the_machine_running_or_is_finished() {
    for point in SAVE {
        let life = Life::new();
        let daemon = life.start();
        let id = create(&daemon);
        life.host.work(id);
        life.host.arm(point, Fault::Fail(1));
        let paused = pause(&daemon, id);
        if point == Point::SaveBefore {
            let error = paused.unwrap_err();
            assert!(error.message.contains("was not paused and runs on"), "{error}");
            assert_eq!(life.host.done(id), Some(1));
            check(&life, &daemon);
            pause(&daemon, id).unwrap();
        } else {
            paused.unwrap();
        }
        check(&life, &daemon);
        resume(&daemon, id).unwrap();
        assert_eq!((life.host.done(id), life.host.identity(id)), (Some(1), Some(Identity::Same)), "{point:?}");
        check(&life, &daemon);
        daemon.kill();
    }
}

#[test]
fn a_machine_that_dies_while_it_is_saved_is_lost_and_clean() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    life.host.arm(Point::SaveBefore, Fault::Fail(1));
    begin_pause(&daemon, id);
    // Whether it dies before, in or after the save that fails: it is gone, or runs and dies then.
    life.host.kill(id);
    daemon.until(id, State::Failed);
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn a_resume_that_is_killed_at_any_step_is_finished() {
    for busy in [false, true] {
        for point in BACK {
            let life = Life::new();
            let first = life.start();
            let id = create(&first);
            life.host.work(id);
            pause(&first, id).unwrap();
            life.host.keep_busy(busy);
            life.host.arm(point, Fault::Halt);
            begin_resume(&first, id);
            life.host.until_halted(point);
            everything_is_recorded(&life, &first);
            first.kill();
            life.host.disarm();
            let second = life.start();
            second.until(id, State::Running);
            check(&life, &second);
            // What a busy guest has done after it came back is still there: it was found again and not begun anew.
            assert_eq!(life.host.done(id), Some(if busy { 2 } else { 1 }), "{point:?} {busy}");
            assert_eq!(life.host.identity(id), Some(Identity::Same), "{point:?} {busy}: it was not booted");
            second.kill();
        }
    }
}

#[test]
fn a_resume_that_fails_at_any_step_can_be_tried_again() {
    for point in BACK {
        let life = Life::new();
        let daemon = life.start();
        let id = create(&daemon);
        life.host.work(id);
        pause(&daemon, id).unwrap();
        life.host.arm(point, Fault::Fail(1));
        let error = resume(&daemon, id).unwrap_err();
        assert!(error.message.contains("did not come back"), "{point:?}: {error}");
        let rows = check(&life, &daemon);
        assert_eq!(rows[0].state, State::Error, "{point:?}");
        // What is saved is still a paused sandbox, also for the next daemon.
        if point == Point::StartDone {
            assert_eq!(pause(&daemon, id).unwrap().status, SandboxStatus::Paused);
        }
        daemon.kill();
        let second = life.start();
        assert_eq!(resume(&second, id).unwrap().status, SandboxStatus::Running, "{point:?}");
        assert_eq!((life.host.done(id), life.host.identity(id)), (Some(1), Some(Identity::Same)), "{point:?}");
        check(&life, &second);
        second.kill();
    }
}

#[test]
fn a_guest_that_wrote_before_it_failed_to_come_back_boots_from_its_disk() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    life.host.work(id);
    pause(&daemon, id).unwrap();
    life.host.keep_busy(true);
    life.host.arm(Point::StartDone, Fault::Fail(1));
    resume(&daemon, id).unwrap_err();
    life.host.keep_busy(false);
    resume(&daemon, id).unwrap();
    // The fake refuses to put memory beside a disk that was written since.
    assert_eq!((life.host.done(id), life.host.identity(id)), (Some(2), None));
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn a_resume_waits_for_the_pause_before_it_and_a_pause_for_the_resume() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    for _ in 0..20 {
        life.host.work(id);
        let (paused, resumed) = daemon.run(async {
            let paused = daemon.daemon.pause_sandbox(&daemon.caller, &by(id), Until::Accepted).await.unwrap();
            let resumed = daemon.daemon.resume_sandbox(&daemon.caller, &by(id), Until::Settled).await.unwrap();
            (paused.status, resumed.status)
        });
        assert_eq!((paused, resumed), (SandboxStatus::Pausing, SandboxStatus::Running));
    }
    assert_eq!(life.host.done(id), Some(20));
    pause(&daemon, id).unwrap();
    let (resumed, paused) = daemon.run(async {
        let resumed = daemon.daemon.resume_sandbox(&daemon.caller, &by(id), Until::Accepted).await.unwrap();
        let paused = daemon.daemon.pause_sandbox(&daemon.caller, &by(id), Until::Settled).await.unwrap();
        (resumed.status, paused.status)
    });
    assert!(matches!(resumed, SandboxStatus::Resuming | SandboxStatus::Running));
    assert_eq!(paused, SandboxStatus::Paused);
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn a_paused_sandbox_holds_no_memory_and_comes_back_only_when_there_is_room() {
    let mut life = Life::new();
    life.bounds.memory_mib = 256;
    life.bounds.memory_overcommit_percent = 100;
    let daemon = life.start();
    let id = create(&daemon);
    pause(&daemon, id).unwrap();
    let other = create(&daemon);
    let error = resume(&daemon, id).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert_eq!(check(&life, &daemon).iter().filter(|row| row.state == State::Paused).count(), 1);
    destroy(&daemon, other);
    resume(&daemon, id).unwrap();
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn a_sandbox_can_be_destroyed_while_it_comes_back_and_from_every_state_of_rest() {
    for point in BACK {
        let life = Life::new();
        let daemon = life.start();
        let id = create(&daemon);
        pause(&daemon, id).unwrap();
        life.host.arm(point, Fault::Halt);
        begin_resume(&daemon, id);
        life.host.until_halted(point);
        assert_eq!(destroy(&daemon, id), SandboxStatus::Destroyed, "{point:?}");
        life.host.disarm();
        check(&life, &daemon);
        daemon.kill();
    }
    let life = Life::new();
    let daemon = life.start();
    let (paused, broken) = (create(&daemon), create(&daemon));
    pause(&daemon, paused).unwrap();
    pause(&daemon, broken).unwrap();
    life.host.arm(Point::StartBefore, Fault::Fail(1));
    resume(&daemon, broken).unwrap_err();
    daemon.kill();
    let second = life.start();
    for id in [paused, broken] {
        assert_eq!(destroy(&second, id), SandboxStatus::Destroyed);
    }
    check(&life, &second);
    second.kill();
}

#[test]
fn copies_are_somebody_new_and_have_what_the_source_had() {
    for is_paused in [false, true] {
        let life = Life::new();
        let daemon = life.start();
        let id = create(&daemon);
        life.host.work(id);
        if is_paused {
            pause(&daemon, id).unwrap();
        }
        let copies = fork(&daemon, id, ForkSandbox { count: Some(5), ..ForkSandbox::default() }).unwrap();
        assert_eq!(copies.len(), 5);
        for copy in &copies {
            assert_eq!((copy.status, copy.forked_from), (SandboxStatus::Running, Some(id)));
            assert_eq!((life.host.done(copy.id), life.host.identity(copy.id)), (Some(1), Some(Identity::New)));
            life.host.work(copy.id);
        }
        let kept = ForkSandbox { start_paused: Some(true), name: Some("kept".into()), ..ForkSandbox::default() };
        let kept = fork(&daemon, id, kept).unwrap().remove(0);
        assert_eq!((kept.status, kept.name.as_ref().unwrap().as_str()), (SandboxStatus::Paused, "kept"));
        without_leftovers(&life, &daemon, 0);
        daemon.kill();
        let second = life.start();
        resume(&second, kept.id).unwrap();
        assert_eq!((life.host.done(kept.id), life.host.identity(kept.id)), (Some(1), Some(Identity::New)));
        pause(&second, kept.id).unwrap();
        resume(&second, kept.id).unwrap();
        assert_eq!(life.host.identity(kept.id), Some(Identity::Same), "it has become somebody");
        // The source is what it was.
        resume(&second, id).unwrap();
        assert_eq!(life.host.done(id), Some(1));
        check(&life, &second);
        second.kill();
    }
}

#[test]
fn a_fork_that_fails_makes_no_copy_and_leaves_the_source_alone() {
    for point in [Point::SaveBefore, Point::SaveWritten, Point::StartBefore, Point::StartDone, Point::ActivateDone] {
        let life = Life::new();
        let daemon = life.start();
        let id = create(&daemon);
        life.host.work(id);
        life.host.arm(point, Fault::Fail(1));
        let error = fork(&daemon, id, ForkSandbox { count: Some(3), ..ForkSandbox::default() }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal, "{point:?}: {error}");
        let rows = check(&life, &daemon);
        let living: Vec<_> = rows.iter().filter(|row| !row.state.is_terminal()).map(|row| row.id).collect();
        assert_eq!(living, [id], "{point:?}");
        assert_eq!(life.host.done(id), Some(1));
        without_leftovers(&life, &daemon, 0);
        daemon.kill();
    }
}

#[test]
fn a_fork_that_is_killed_at_any_step_leaves_the_source_and_nothing_else() {
    let points = [Point::SaveBefore, Point::SaveWritten, Point::SaveDone].into_iter().chain(BACK);
    for point in points {
        let life = Life::new();
        let first = life.start();
        let id = create(&first);
        life.host.work(id);
        life.host.arm(point, Fault::Halt);
        begin(&first, move |contract, caller| async move {
            let request = ForkSandbox { count: Some(2), ..ForkSandbox::default() };
            drop(contract.fork_sandbox(&caller, &by(id), request).await);
        });
        life.host.until_halted(point);
        everything_is_recorded(&life, &first);
        first.kill();
        life.host.disarm();
        let second = life.start();
        let rows = check(&life, &second);
        let running: Vec<_> = rows.iter().filter(|row| row.state == State::Running).map(|row| row.id).collect();
        assert_eq!(running, [id], "{point:?}");
        assert_eq!(life.host.done(id), Some(1), "{point:?}");
        without_leftovers(&life, &second, 0);
        second.kill();
    }
}

#[test]
fn a_copy_whose_source_is_still_being_saved_can_be_destroyed() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    life.host.arm(Point::SaveBefore, Fault::Halt);
    begin(&daemon, move |contract, caller| async move {
        drop(contract.fork_sandbox(&caller, &by(id), ForkSandbox::default()).await);
    });
    life.host.until_halted(Point::SaveBefore);
    let copy = daemon.rows().into_iter().find(|row| row.forked_from == Some(id)).unwrap().id;
    assert_eq!(destroy(&daemon, copy), SandboxStatus::Destroyed);
    daemon.kill();
    life.host.disarm();
    let second = life.start();
    check(&life, &second);
    without_leftovers(&life, &second, 0);
    second.kill();
}

#[test]
fn snapshots_make_a_tree_that_outlives_the_sandbox() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    life.host.work(id);
    let root = snapshot(&daemon, id, Some("root")).unwrap();
    life.host.work(id);
    let middle = snapshot(&daemon, id, None).unwrap();
    pause(&daemon, id).unwrap();
    let leaf = snapshot(&daemon, id, Some("leaf")).unwrap();
    assert_eq!((root.parent, middle.parent, leaf.parent), (None, Some(root.id), Some(middle.id)));
    assert_eq!(snapshot(&daemon, id, Some("root")).unwrap_err().kind, ErrorKind::NameTaken);
    assert!(root.size_bytes > 0);
    // Back to the root: what came after is undone, and is a branch of its own from there on.
    assert_eq!(restore(&daemon, id, root.id).unwrap().status, SandboxStatus::Running);
    assert_eq!((life.host.done(id), life.host.identity(id)), (Some(1), Some(Identity::Same)));
    assert_eq!(snapshot(&daemon, id, None).unwrap().parent, Some(root.id));
    let page = SnapshotReference::parse("leaf").unwrap();
    destroy(&daemon, id);
    let begun = CreateSandbox { snapshot: Some("leaf".into()), ..CreateSandbox::default() };
    let begun = daemon.run(daemon.daemon.create_sandbox(&daemon.caller, begun)).unwrap().sandbox;
    assert_eq!((begun.snapshot, begun.shape.as_deref()), (Some(leaf.id), Some("s-1vcpu-256mb")));
    assert_eq!((life.host.done(begun.id), life.host.identity(begun.id)), (Some(2), Some(Identity::New)));
    let reference = SnapshotReference::Id(middle.id);
    daemon.run(daemon.daemon.delete_snapshot(&daemon.caller, &reference)).unwrap();
    assert_eq!(daemon.run(daemon.daemon.snapshot(&daemon.caller, &page)).unwrap().parent, Some(root.id));
    assert_eq!(snapshots(&daemon).len(), 3);
    without_leftovers(&life, &daemon, 3);
    let wrong = CreateSandbox { snapshot: Some("leaf".into()), ..request() };
    let wrong = CreateSandbox { disk_mib: Some(77), ..wrong };
    let error = daemon.run(daemon.daemon.create_sandbox(&daemon.caller, wrong)).unwrap_err();
    assert!(error.message.contains("disk_mib: \"77\" is not the snapshot's"), "{error}");
    let other = create(&daemon);
    assert!(restore(&daemon, other, root.id).unwrap_err().message.contains("of another sandbox"));
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn a_restore_that_is_killed_at_any_step_is_finished_or_never_was() {
    let points = [Point::DestroyBefore, Point::DestroyProcess, Point::DestroyDone].into_iter().chain(BACK);
    for is_paused in [false, true] {
        for point in points.clone() {
            let life = Life::new();
            let first = life.start();
            let id = create(&first);
            life.host.work(id);
            let wanted = snapshot(&first, id, None).unwrap().id;
            life.host.work(id);
            if is_paused {
                pause(&first, id).unwrap();
            }
            life.host.arm(point, Fault::Halt);
            begin(&first, move |contract, caller| async move {
                drop(contract.restore_snapshot(&caller, &by(id), &SnapshotReference::Id(wanted)).await);
            });
            life.host.until_halted(point);
            everything_is_recorded(&life, &first);
            first.kill();
            life.host.disarm();
            let second = life.start();
            second.until(id, State::Running);
            check(&life, &second);
            assert_eq!(life.host.done(id), Some(1), "{point:?} {is_paused}");
            assert_eq!(life.host.identity(id), Some(Identity::Same), "{point:?} {is_paused}");
            without_leftovers(&life, &second, 1);
            second.kill();
        }
    }
}

#[test]
fn what_is_attached_when_a_pause_comes_ends_with_a_clear_error() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    let stream = daemon.daemon.clone();
    let caller = daemon.caller.clone();
    let (tell, told) = std::sync::mpsc::channel();
    daemon.spawn(async move {
        // The fake agent never answers, so that the command is on its way when the pause comes.
        let execute = hutch_api::Execute { cmd: "sleep".to_owned(), ..hutch_api::Execute::default() };
        let mut events = stream.execute(&caller, &by(id), execute).await.unwrap();
        tell.send(events.next().await.expect("an end").map(drop)).unwrap();
    });
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while daemon.core().registry.find(id).unwrap().activity.running() == 0 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    pause(&daemon, id).unwrap();
    let error = told.recv().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::SandboxPaused, "{error}");
    let execute = hutch_api::Execute { cmd: "true".to_owned(), ..hutch_api::Execute::default() };
    let refused = daemon.run(daemon.daemon.execute(&daemon.caller, &by(id), execute));
    let refused = refused.map(drop).unwrap_err();
    assert_eq!(refused.message, "sandbox is paused; resume it before executing commands");
    begin_destroy(&daemon, id);
    daemon.until(id, State::Destroyed);
    assert_eq!(daemon.core().metrics.counted(Count::MachineLost), 0);
    drop(Arc::clone(daemon.core()));
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn a_saved_machine_that_is_gone_leaves_the_disk_to_boot_from() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    life.host.work(id);
    pause(&daemon, id).unwrap();
    std::fs::remove_dir_all(life.data().pause(id, 1)).unwrap();
    resume(&daemon, id).unwrap();
    assert_eq!((life.host.done(id), life.host.identity(id)), (Some(1), None));
    check(&life, &daemon);
    daemon.kill();
}

#[test]
fn what_is_damaged_is_refused_and_says_so() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon);
    let taken = snapshot(&daemon, id, Some("damaged")).unwrap();
    pause(&daemon, id).unwrap();
    let damage = |directory: std::path::PathBuf| std::fs::write(directory.join("snapshot.json"), "{").unwrap();
    damage(life.data().snapshot(taken.id));
    let request = CreateSandbox { snapshot: Some("damaged".into()), ..CreateSandbox::default() };
    let created = daemon.run(daemon.daemon.create_sandbox(&daemon.caller, request)).map(drop);
    for error in [created.unwrap_err(), restore(&daemon, id, taken.id).map(drop).unwrap_err()] {
        assert_eq!(error.kind, ErrorKind::SnapshotUnusable, "{error}");
        assert!(error.message.contains("cannot be read"), "{error}");
    }
    assert_eq!(daemon.rows().len(), 1, "a refusal leaves nothing behind");
    damage(life.data().pause(id, 1));
    assert_eq!(resume(&daemon, id).unwrap_err().kind, ErrorKind::SnapshotUnusable);
    assert_eq!(check(&life, &daemon)[0].state, State::Error);
    assert_eq!(destroy(&daemon, id), SandboxStatus::Destroyed);
    check(&life, &daemon);
    daemon.kill();
}
