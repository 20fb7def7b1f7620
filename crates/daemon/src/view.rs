//! Rows as the API shows them.

use hutch_api::{CreatedSandbox, Isolation, SandboxStatus, SandboxView, SnapshotStatus, SnapshotView, Timestamp};

use crate::clock::Moment;
use crate::core::Settings;
use crate::lifecycle::State;
use crate::store::{SandboxRow, SnapshotRow, SnapshotState};

/// A sandbox as the API shows it.
pub(crate) fn sandbox(row: &SandboxRow, settings: &Settings) -> SandboxView {
    let spec = &row.spec;
    SandboxView {
        id: row.id,
        status: status(row.state),
        name: Some(row.name.clone()),
        // There is no network yet, and an address that nothing answers at would be a lie.
        ip: None,
        shape: Some(spec.shape.clone()),
        rootfs: Some(spec.rootfs.clone()),
        vcpu: spec.vcpu,
        mem_mib: spec.memory_mib,
        disk_mib: spec.disk_mib,
        spawn_ms: row.spawn_ms,
        created_at: timestamp(row.created_at),
        running_at: row.running_at.map(timestamp),
        destroyed_at: (row.state == State::Destroyed).then_some(row.ended_at).flatten().map(timestamp),
        paused_at: row.paused_at.map(timestamp),
        last_resumed_at: row.last_resumed_at.map(timestamp),
        // The wish is kept; without a network there is no URL to show for it.
        ingress_enabled: row.ingress,
        ingress_url_template: None,
        region: Some(settings.region.clone()),
        egress: Some(spec.egress.clone()),
        envs: (!spec.envs.is_empty()).then(|| spec.envs.keys().cloned().collect()),
        ssh_pubkeys: (!spec.ssh_pubkeys.is_empty()).then(|| spec.ssh_pubkeys.clone()),
        created_by: Some(row.account.clone()),
        bandwidth_ingress_bytes: None,
        forked_from: row.forked_from,
        auto_pause_after_seconds: row.auto_pause_after_seconds,
        auto_destroy_after_seconds: row.auto_destroy_after_seconds,
        snapshot: row.snapshot,
        labels: row.labels.clone(),
        engine: Some(spec.engine.clone()),
        isolation: isolation(&spec.engine),
        network: Some("loopback".to_owned()),
        expires_at: row.expires_at.map(timestamp),
        reason: matches!(row.state, State::Paused | State::Failed | State::Error).then(|| row.reason.clone()).flatten(),
    }
}

/// A sandbox as the answer to its create.
pub(crate) fn created(row: &SandboxRow, settings: &Settings) -> CreatedSandbox {
    CreatedSandbox { sandbox: sandbox(row, settings), bandwidth_quota_bytes: -1, replayed: None }
}

/// A snapshot as the API shows it.
pub(crate) fn snapshot(row: &SnapshotRow) -> SnapshotView {
    SnapshotView {
        id: row.id,
        name: row.name.clone(),
        description: row.description.clone(),
        status: match row.state {
            SnapshotState::Creating => SnapshotStatus::Creating,
            SnapshotState::Ready => SnapshotStatus::Ready,
            SnapshotState::Deleting => SnapshotStatus::Deleting,
        },
        sandbox: row.sandbox,
        parent: row.parent,
        shape: Some(row.spec.shape.clone()),
        rootfs: Some(row.spec.rootfs.clone()),
        mem_mib: row.spec.memory_mib,
        disk_mib: row.spec.disk_mib,
        size_bytes: row.bytes,
        created_at: timestamp(row.created_at),
        labels: row.labels.clone(),
    }
}

/// A state in the API's type.
pub(crate) fn status(state: State) -> SandboxStatus {
    match state {
        State::Creating => SandboxStatus::Creating,
        State::Running => SandboxStatus::Running,
        State::Pausing => SandboxStatus::Pausing,
        State::Paused => SandboxStatus::Paused,
        State::Resuming => SandboxStatus::Resuming,
        State::Forking => SandboxStatus::Forking,
        State::Error => SandboxStatus::Error,
        State::Destroying => SandboxStatus::Destroying,
        State::Destroyed => SandboxStatus::Destroyed,
        State::Failed => SandboxStatus::Failed,
    }
}

/// A status of the API as a state.
pub(crate) fn state(status: SandboxStatus) -> State {
    match status {
        SandboxStatus::Creating => State::Creating,
        SandboxStatus::Running => State::Running,
        SandboxStatus::Pausing => State::Pausing,
        SandboxStatus::Paused => State::Paused,
        SandboxStatus::Resuming => State::Resuming,
        SandboxStatus::Forking => State::Forking,
        SandboxStatus::Error => State::Error,
        SandboxStatus::Destroying => State::Destroying,
        SandboxStatus::Destroyed => State::Destroyed,
        SandboxStatus::Failed => State::Failed,
    }
}

fn isolation(engine: &str) -> Option<Isolation> {
    match engine {
        "usermode" => Some(Isolation::UserKernel),
        _ => None,
    }
}

fn timestamp(moment: Moment) -> Timestamp {
    Timestamp::from(moment.date_time())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;

    #[test]
    fn a_view_shows_no_value_of_the_environment() {
        let mut row = tests::row();
        row.spec.envs.insert("TOKEN".to_owned(), "hidden-value".to_owned());
        let json = serde_json::to_string(&sandbox(&row, &Settings::default())).unwrap();
        assert!(json.contains("TOKEN") && !json.contains("hidden-value"), "{json}");
        assert!(json.contains("\"network\":\"loopback\"") && json.contains("\"isolation\":\"user-kernel\""), "{json}");
    }

    #[test]
    fn a_reason_is_shown_only_where_something_went_wrong() {
        let mut row = SandboxRow { reason: Some("why".to_owned()), ..tests::row() };
        assert_eq!(sandbox(&row, &Settings::default()).reason, None);
        row.state = State::Failed;
        assert_eq!(sandbox(&row, &Settings::default()).reason.as_deref(), Some("why"));
    }

    #[test]
    fn states_and_statuses_are_one_to_one() {
        for one in State::ALL {
            assert_eq!(state(status(one)), one);
            assert_eq!(status(one).as_str(), one.as_str());
        }
    }
}
