//! Creates from templates and from machines that wait, with real sandboxes. Needs root, the guest
//! (`cargo xtask guest`) and the image debian:13; without them each test says so and passes.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod lab;

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use hutch_api::SandboxStatus;
use lab::{Lab, PATIENCE};

/// What a counter or gauge of the daemon shows.
async fn metric(lab: &Lab, name: &str) -> u64 {
    let text = lab.client.metrics().await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("there is no {name}"))
}

async fn until_at_least(lab: &Lab, name: &str, value: u64) {
    let began = Instant::now();
    while metric(lab, name).await < value {
        assert!(began.elapsed() < PATIENCE, "{name} does not come to {value}\n{}", lab.tail());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A lab whose template for the tests' sandboxes is made.
async fn warm() -> Option<Lab> {
    let lab = Lab::open().await?;
    let made = metric(&lab, "hutch_templates").await;
    // The second request for an unusual size of disk is what makes the template.
    for _ in 0..2 {
        let id = lab.create().await;
        lab.client.destroy_sandbox(&id).await.unwrap();
    }
    until_at_least(&lab, "hutch_templates", made + 1).await;
    // Those for the usual shapes may have been under way: the one meant is there when a clone is made from it.
    let began = Instant::now();
    loop {
        let id = lab.create().await;
        lab.client.destroy_sandbox(&id).await.unwrap();
        let text = lab.client.metrics().await.unwrap();
        if !text.contains("hutch_creates_from_template_total 0") || !text.contains("hutch_creates_from_pool_total 0") {
            return Some(lab);
        }
        assert!(began.elapsed() < PATIENCE, "no clone\n{}", lab.tail());
    }
}

#[tokio::test]
async fn clones_are_somebody_new_each() {
    let Some(mut lab) = warm().await else { return };
    let boots = metric(&lab, "hutch_creates_from_boot_total").await;
    let ids = join_all((0..12).map(|_| lab.create())).await;
    assert_eq!(metric(&lab, "hutch_creates_from_boot_total").await, boots, "nobody booted");
    let ask = "cat /etc/machine-id /proc/sys/kernel/random/boot_id /etc/hostname; head -c 16 /dev/urandom | od -An -tx1; \
               python3 -c 'import uuid; print(uuid.uuid4())'";
    let answers = join_all(ids.iter().map(|id| lab.shell(id, ask))).await;
    for line in 0..5 {
        let values: BTreeSet<_> = answers.iter().map(|answer| answer.stdout.lines().nth(line).unwrap()).collect();
        assert_eq!(values.len(), ids.len(), "line {line}: {values:?}");
    }
    for id in &ids {
        let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let clock: f64 = lab.shell(id, "date +%s.%N").await.stdout.trim().parse().unwrap();
        let after = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((before - 0.05..after + 0.05).contains(&clock), "{before} {clock} {after}");
    }
    // What one writes the others do not see.
    lab.shell(&ids[0], "echo mine > /root/file; sync").await;
    assert_eq!(lab.shell(&ids[1], "test -e /root/file || echo none").await.stdout, "none\n");
    lab.clean().await;
}

#[tokio::test]
async fn a_burst_succeeds_whole() {
    let Some(mut lab) = warm().await else { return };
    let began = Instant::now();
    let ids = join_all((0..40).map(|_| lab.create())).await;
    println!("40 at once took {} ms", began.elapsed().as_millis());
    let answers = join_all(ids.iter().map(|id| lab.shell(id, "echo here"))).await;
    assert!(answers.iter().all(|answer| answer.stdout == "here\n"));
    lab.audited().await;
    lab.clean().await;
}

#[tokio::test]
async fn a_machine_that_waits_is_taken_over_and_another_one_comes() {
    let Some(mut lab) = warm().await else { return };
    for _ in 0..3 {
        until_at_least(&lab, "hutch_machines_waiting", 1).await;
        let taken = metric(&lab, "hutch_creates_from_pool_total").await;
        let id = lab.create().await;
        assert_eq!(lab.shell(&id, "echo here").await.stdout, "here\n");
        assert_eq!(lab.client.sandbox(&id).await.unwrap().status, SandboxStatus::Running);
        if metric(&lab, "hutch_creates_from_pool_total").await > taken {
            lab.clean().await;
            return;
        }
        // The one that waited was of another shape.
    }
    panic!("no sandbox took a machine over\n{}", lab.tail());
}

#[tokio::test]
async fn a_kill_among_creates_leaves_what_lives_and_nothing_else() {
    let Some(mut lab) = warm().await else { return };
    let kept = lab.create().await;
    for round in 0..6_u64 {
        {
            let creates = join_all((0..4).map(|_| lab.try_create()));
            drop(tokio::time::timeout(Duration::from_millis(7 * round), creates).await);
        }
        lab.kill();
        lab.start().await;
        assert_eq!(lab.shell(&kept, "echo here").await.stdout, "here\n", "round {round}");
        lab.audited().await;
    }
    let id = lab.create().await;
    assert_eq!(lab.shell(&id, "echo here").await.stdout, "here\n");
    lab.clean().await;
}
