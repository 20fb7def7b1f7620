//! The contract against a host in memory: what is refused and why, what is found, what falls due.

use std::collections::BTreeMap;
use std::time::Duration;

use hutch_api::{
    Caller, CreateSandbox, DiskMount, Error, ErrorKind, NetworkReference, Operations as _, PageRequest, SandboxFilter,
    SandboxReference, SandboxStatus, UpdateSandbox,
};

use crate::capacity::Supply;
use crate::lifecycle::State;
use crate::store::query;
use crate::sweep;
use crate::tests::{Fault, Incarnation, Life, Point, request};

const PAGE: PageRequest = PageRequest { limit: 50, offset: 0 };

fn create(daemon: &Incarnation, request: CreateSandbox) -> Result<hutch_api::CreatedSandbox, Error> {
    daemon.run(daemon.daemon.create_sandbox(&daemon.caller, request))
}

fn named(name: &str) -> CreateSandbox {
    CreateSandbox { name: Some(name.to_owned()), ..request() }
}

/// What a create with this change is refused with, as `field: message`.
#[track_caller]
fn refused(daemon: &Incarnation, change: impl FnOnce(&mut CreateSandbox), expected: &str) {
    let mut request = request();
    change(&mut request);
    let error = create(daemon, request).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidRequest, "{error}");
    assert!(error.message.contains(expected), "{error}");
    assert!(daemon.rows().is_empty(), "a refusal leaves nothing behind");
}

#[test]
fn bad_requests_name_the_field_and_the_choices() {
    let life = Life::new();
    let daemon = life.start();
    refused(&daemon, |r| r.shape = "s-9".into(), "shape: unknown shape \"s-9\", choices: [s-1vcpu-256mb ");
    refused(&daemon, |r| r.rootfs = Some("beos:5".into()), "rootfs: unknown image \"beos:5\", choices: [debian:13]");
    refused(&daemon, |r| r.engine = Some("vm".into()), "engine: unknown engine \"vm\", choices: [auto usermode]");
    refused(
        &daemon,
        |r| r.region = Some("mars".into()),
        "region: \"mars\" is not this service's: it must be \"local\"",
    );
    refused(&daemon, |r| r.host_id = Some("other".into()), "host_id: \"other\"");
    refused(&daemon, |r| r.disk_mib = Some(1), "disk_mib: must be 64 to ");
    refused(&daemon, |r| r.networks = vec![NetworkReference { id: "n".into() }], "networks: not available");
    let disk = DiskMount { disk_id: "d".into(), mount_path: "/d".into(), sub_path: None };
    refused(&daemon, |r| r.disks = vec![disk], "disks: not available");
    refused(&daemon, |r| r.node_selector = BTreeMap::from([("a".into(), "b".into())]), "node_selector: not available");
    refused(&daemon, |r| r.egress = vec![String::new()], "egress[0]: must have 1 to");
    refused(&daemon, |r| r.ssh_pubkeys = vec!["k".into(); 257], "ssh_pubkeys: has 257 entries");
    daemon.kill();
}

#[test]
fn the_answer_to_a_create_is_the_whole_sandbox() {
    let life = Life::new();
    let daemon = life.start();
    let mut request = named("quick-otter");
    request.envs.insert("A".into(), "1".into());
    request.region = Some("local".into());
    request.host_id = Some(daemon.core().settings.host_id.clone());
    request.auto_pause_after_seconds = Some(600);
    let created = create(&daemon, request).unwrap();
    let view = created.sandbox;
    assert_eq!((view.status, created.bandwidth_quota_bytes), (SandboxStatus::Running, -1));
    assert_eq!(view.name.as_ref().unwrap().as_str(), "quick-otter");
    assert_eq!((view.envs, view.auto_pause_after_seconds), (Some(vec!["A".to_owned()]), Some(600)));
    assert!(view.spawn_ms.is_some() && view.running_at.is_some() && view.ip.is_none());
    let unnamed = create(&daemon, self::request()).unwrap().sandbox.name.unwrap();
    assert!(unnamed.as_str().contains('-'));
    daemon.kill();
}

#[test]
fn a_name_belongs_to_one_living_sandbox() {
    let life = Life::new();
    let daemon = life.start();
    create(&daemon, named("a")).unwrap();
    assert_eq!(create(&daemon, named("a")).unwrap_err().kind, ErrorKind::NameTaken);
    let by_name = SandboxReference::parse("a").unwrap();
    let gone = daemon.run(daemon.daemon.destroy_sandbox(&daemon.caller, &by_name)).unwrap();
    assert_eq!(gone.status, SandboxStatus::Destroyed);
    assert_eq!(daemon.run(daemon.daemon.sandbox(&daemon.caller, &by_name)).unwrap_err().kind, ErrorKind::NotFound);
    create(&daemon, named("a")).unwrap();
    daemon.kill();
}

#[test]
fn the_same_key_makes_one_sandbox_however_often_and_however_fast_it_comes() {
    let life = Life::new();
    let daemon = life.start();
    let keyed = || CreateSandbox { idempotency_key: Some("k".into()), ..request() };
    let all = daemon.run(async {
        let one = |_| daemon.daemon.create_sandbox(&daemon.caller, keyed());
        futures_util::future::join_all((0..20).map(one)).await
    });
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert!(all.iter().all(|created| created.sandbox.id == all[0].sandbox.id));
    assert_eq!(all.iter().filter(|created| created.replayed.is_none()).count(), 1);
    assert_eq!(daemon.rows().len(), 1);
    // The same answer, also when the sandbox has gone on.
    let reference = SandboxReference::Id(all[0].sandbox.id);
    daemon.run(daemon.daemon.destroy_sandbox(&daemon.caller, &reference)).unwrap();
    let again = create(&daemon, keyed()).unwrap();
    assert_eq!((again.sandbox.status, again.replayed), (SandboxStatus::Running, Some(true)));
    let other = CreateSandbox { disk_mib: Some(512), ..keyed() };
    assert_eq!(create(&daemon, other).unwrap_err().kind, ErrorKind::IdempotencyMismatch);
    daemon.kill();
}

#[test]
fn a_failed_create_leaves_its_key_free() {
    let life = Life::new();
    let daemon = life.start();
    let keyed = || CreateSandbox { idempotency_key: Some("k".into()), ..request() };
    life.host.arm(Point::StartBefore, Fault::Fail(1));
    assert_eq!(create(&daemon, keyed()).unwrap_err().kind, ErrorKind::Internal);
    assert_eq!(create(&daemon, keyed()).unwrap().replayed, None);
    daemon.kill();
}

#[test]
fn without_room_nothing_is_begun() {
    let mut life = Life::new();
    life.bounds.memory_mib = 600;
    let daemon = life.start();
    let first = create(&daemon, request()).unwrap().sandbox;
    create(&daemon, request()).unwrap();
    let error = create(&daemon, request()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.retry_after.is_some() && error.message.contains("88 of 600 MiB free"), "{error}");
    assert_eq!(daemon.rows().len(), 2);
    daemon.run(daemon.daemon.destroy_sandbox(&daemon.caller, &SandboxReference::Id(first.id))).unwrap();
    create(&daemon, request()).unwrap();
    daemon.kill();
}

#[test]
fn a_burst_of_creates_succeeds_with_a_slot_and_a_name_for_each() {
    let life = Life::new();
    let daemon = life.start();
    let all = daemon.run(async {
        let one = |_| daemon.daemon.create_sandbox(&daemon.caller, request());
        futures_util::future::join_all((0..200).map(one)).await
    });
    assert_eq!(all.iter().filter(|created| created.is_ok()).count(), 200);
    let slots: std::collections::BTreeSet<_> = daemon.rows().iter().map(|row| row.slot).collect();
    assert_eq!(slots.len(), 200);
    daemon.kill();
}

#[test]
fn what_belongs_to_another_account_is_not_there() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon, named("mine")).unwrap().sandbox.id;
    let now = daemon.core().clock.now();
    let other = daemon.core().store.write("other", move |db| query::create_account(db, "other", now));
    let other = Caller { account: daemon.run(other).unwrap().id, key: "key-other".to_owned() };
    for reference in [SandboxReference::Id(id), SandboxReference::parse("mine").unwrap()] {
        let found = daemon.run(daemon.daemon.sandbox(&other, &reference));
        assert_eq!(found.unwrap_err().kind, ErrorKind::NotFound);
        let destroyed = daemon.run(daemon.daemon.destroy_sandbox(&other, &reference));
        assert_eq!(destroyed.unwrap_err().kind, ErrorKind::NotFound);
        let changed = daemon.run(daemon.daemon.update_sandbox(&other, &reference, UpdateSandbox::default()));
        assert_eq!(changed.unwrap_err().kind, ErrorKind::NotFound);
    }
    let listed = daemon.run(daemon.daemon.list_sandboxes(&other, SandboxFilter::default(), PAGE)).unwrap();
    assert_eq!(listed.pagination.total, 0);
    daemon.kill();
}

#[test]
fn keys_open_until_they_are_revoked() {
    let life = Life::new();
    let daemon = life.start();
    let key = std::fs::read_to_string(life.data().api_key()).unwrap();
    let caller = daemon.run(daemon.daemon.authenticate(key.trim())).unwrap();
    assert_eq!(caller.account, daemon.caller.account);
    for wrong in ["", "skp_", "skp_0000"] {
        let error = daemon.run(daemon.daemon.authenticate(wrong)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthenticated);
    }
    // A command beside the daemon works on the same file.
    assert!(crate::keys::revoke(&life.data(), &caller.key).unwrap());
    assert!(daemon.run(daemon.daemon.authenticate(key.trim())).is_err());
    daemon.kill();
}

#[test]
fn changes_are_stored_and_what_is_absent_stays() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon, request()).unwrap().sandbox.id;
    let reference = SandboxReference::Id(id);
    let update = |change| daemon.run(daemon.daemon.update_sandbox(&daemon.caller, &reference, change));
    let change = UpdateSandbox {
        auto_pause_after_seconds: Some(60),
        labels: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
        lifetime_seconds: Some(100),
        ingress_enabled: Some(true),
        ..UpdateSandbox::default()
    };
    let view = update(change).unwrap();
    assert_eq!((view.auto_pause_after_seconds, view.labels.len(), view.ingress_enabled), (Some(60), 1, true));
    assert!(view.expires_at.is_some() && view.ingress_url_template.is_none());
    let change =
        UpdateSandbox { disable_auto_pause: Some(true), lifetime_seconds: Some(0), ..UpdateSandbox::default() };
    let view = update(change).unwrap();
    assert_eq!((view.auto_pause_after_seconds, view.labels.len(), view.expires_at), (None, 1, None));
    let listed = SandboxFilter { labels: view.labels, ..SandboxFilter::default() };
    let listed = daemon.run(daemon.daemon.list_sandboxes(&daemon.caller, listed, PAGE)).unwrap();
    assert_eq!(listed.data[0].id, id);
    daemon.run(daemon.daemon.destroy_sandbox(&daemon.caller, &reference)).unwrap();
    assert_eq!(update(UpdateSandbox::default()).unwrap_err().kind, ErrorKind::WrongState);
    daemon.kill();
}

#[test]
fn an_expiry_is_kept_across_restarts_and_a_renewed_one_does_not_fire() {
    let life = Life::new();
    let daemon = life.start();
    let lasting = |seconds| CreateSandbox { lifetime_seconds: Some(seconds), ..request() };
    let (short, renewed) = (create(&daemon, lasting(10)).unwrap(), create(&daemon, lasting(10)).unwrap());
    let (short, renewed) = (short.sandbox.id, renewed.sandbox.id);
    life.clock.advance(Duration::from_secs(9));
    let change = UpdateSandbox { lifetime_seconds: Some(60), ..UpdateSandbox::default() };
    daemon.run(daemon.daemon.update_sandbox(&daemon.caller, &SandboxReference::Id(renewed), change)).unwrap();
    daemon.kill();
    life.clock.advance(Duration::from_secs(2));
    let second = life.start();
    second.until(short, State::Destroyed);
    assert_eq!(second.settled().iter().filter(|row| row.state == State::Running).count(), 1);
    assert_eq!(life.host.machines(), [renewed]);
    second.kill();
}

#[test]
fn ended_rows_are_read_for_a_while_and_then_forgotten() {
    let life = Life::new();
    let daemon = life.start();
    let id = create(&daemon, request()).unwrap().sandbox.id;
    let reference = SandboxReference::Id(id);
    let get = || daemon.run(daemon.daemon.sandbox(&daemon.caller, &reference));
    daemon.run(daemon.daemon.destroy_sandbox(&daemon.caller, &reference)).unwrap();
    assert_eq!(get().unwrap().status, SandboxStatus::Destroyed);
    let listed = daemon.run(daemon.daemon.list_sandboxes(&daemon.caller, SandboxFilter::default(), PAGE)).unwrap();
    assert_eq!(listed.pagination.total, 0, "a list shows what has not ended");
    life.clock.advance(Duration::from_secs(3601));
    daemon.run(sweep::forget(daemon.core())).unwrap();
    assert_eq!(get().unwrap_err().kind, ErrorKind::NotFound);
    daemon.kill();
}

#[test]
fn who_fills_the_hosts_disk_is_given_up_and_nobody_else() {
    let mut life = Life::new();
    life.bounds.disk_floor_bytes = 1 << 20;
    let daemon = life.start();
    let id = |created: hutch_api::CreatedSandbox| created.sandbox.id;
    let (modest, greedy) = (id(create(&daemon, request()).unwrap()), id(create(&daemon, request()).unwrap()));
    std::fs::write(life.data().disk(modest), vec![1; 100 << 10]).unwrap();
    std::fs::write(life.data().disk(greedy), vec![1; 900 << 10]).unwrap();
    let supply = |disk_bytes| Supply { disk_bytes, memory_mib: u64::MAX, processes: u64::MAX };
    daemon.run(sweep::guard_disk(daemon.core(), supply(1 << 20)));
    daemon.run(sweep::guard_disk(daemon.core(), supply((1 << 20) - 1)));
    daemon.until(greedy, State::Failed);
    let rows = daemon.settled();
    let reason = rows.iter().find(|row| row.id == greedy).unwrap().reason.clone().unwrap();
    assert!(reason.contains("disk is nearly full"), "{reason}");
    daemon.run(sweep::guard_disk(daemon.core(), supply(0)));
    assert_eq!(
        daemon.run(daemon.daemon.sandbox(&daemon.caller, &SandboxReference::Id(modest))).unwrap().status,
        SandboxStatus::Running
    );
    daemon.kill();
}

#[test]
fn nothing_is_created_before_the_daemon_is_ready() {
    let life = Life::new();
    let daemon = life.open();
    let readiness = daemon.run(daemon.daemon.ready());
    assert!(!readiness.ready && readiness.reason.unwrap().contains("starting"));
    assert_eq!(create(&daemon, request()).unwrap_err().kind, ErrorKind::Unavailable);
    daemon.run(daemon.started.recover());
    assert!(daemon.run(daemon.daemon.ready()).ready);
    create(&daemon, request()).unwrap();
    daemon.kill();
}

#[test]
fn the_host_tells_about_itself() {
    let life = Life::new();
    let daemon = life.start();
    create(&daemon, request()).unwrap();
    let caller = &daemon.caller;
    let who = daemon.run(daemon.daemon.who_am_i(caller)).unwrap();
    assert_eq!((who.stats.running, who.stats.total), (1, 1));
    let host = daemon.run(daemon.daemon.hosts(caller)).unwrap().remove(0);
    assert_eq!((host.vm_count, host.rootfses), (1, Some(vec!["debian:13".to_owned()])));
    let catalogue = daemon.run(daemon.daemon.rootfs()).unwrap();
    assert_eq!(catalogue.default, "debian:13");
    let metrics = daemon.run(daemon.daemon.metrics(caller)).unwrap();
    assert!(metrics.contains("hutch_sandboxes{state=\"running\"} 1") && metrics.contains("hutch_creates_total 1"));
    let audit = daemon.run(daemon.daemon.audit(caller)).unwrap();
    assert_eq!((audit.artefacts.len(), audit.orphans().count()), (3, 0));
    let error = daemon.run(daemon.daemon.image(caller, "beos:5")).unwrap_err();
    assert_eq!(error.message, "unknown image \"beos:5\", choices: [debian:13]");
    daemon.kill();
}

#[test]
fn the_host_id_and_the_first_key_are_made_once() {
    let life = Life::new();
    let first = life.start();
    let (host, key) = (first.core().settings.host_id.clone(), std::fs::read(life.data().api_key()).unwrap());
    first.kill();
    let second = life.start();
    assert_eq!(second.core().settings.host_id, host);
    assert_eq!(std::fs::read(life.data().api_key()).unwrap(), key);
    second.kill();
}
