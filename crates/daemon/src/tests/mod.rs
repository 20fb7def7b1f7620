//! For tests: values, a host that exists only in memory, and daemons on it that can be killed.

mod fake_host;

mod fake_agent;

mod incarnation;

use std::collections::BTreeMap;

use hutch_units::{SandboxId, SandboxName};

use crate::clock::Moment;
use crate::lifecycle::State;
use crate::store::{Desired, SPEC_VERSION, SandboxRow, Spec};

pub(crate) use fake_host::{Fault, Point};
pub(crate) use incarnation::{Incarnation, Life, request};

/// What a small sandbox is created with.
pub(crate) fn spec() -> Spec {
    Spec {
        version: SPEC_VERSION,
        engine: "usermode".to_owned(),
        shape: "s-1vcpu-256mb".to_owned(),
        vcpu: 1,
        memory_mib: 256,
        cpu_quota_percent: None,
        disk_mib: 1024,
        rootfs: "debian:13".to_owned(),
        base_image: "/cache/a.erofs".into(),
        envs: BTreeMap::new(),
        egress: Vec::new(),
        ssh_pubkeys: Vec::new(),
        created_by: None,
    }
}

/// A running sandbox.
pub(crate) fn row() -> SandboxRow {
    SandboxRow {
        id: SandboxId::generate(),
        account: "acc-1".to_owned(),
        name: SandboxName::parse("quick-otter").expect("a name"),
        state: State::Running,
        desired: Desired::Running,
        reason: None,
        step: None,
        slot: Some(0),
        spec: spec(),
        machine: None,
        labels: BTreeMap::new(),
        auto_pause_after_seconds: None,
        auto_destroy_after_seconds: None,
        ingress: false,
        spawn_ms: None,
        created_at: Moment(1_700_000_000_000),
        running_at: None,
        ended_at: None,
        expires_at: None,
        last_activity_at: Moment(1_700_000_000_000),
        template: None,
        origin: None,
        snapshot: None,
        parent: None,
        forked_from: None,
        pause: None,
        fresh: false,
        disk_stamp: None,
        paused_at: None,
        last_resumed_at: None,
    }
}
