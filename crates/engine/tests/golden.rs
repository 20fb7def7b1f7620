//! The persisted forms, held to what they were when their version was made: a change here is a new version.

use hutch_engine::guest::GuestManifest;
use hutch_engine::machine::{EngineKind, MachineRecord};
use hutch_engine::snapshot::{Saved, SnapshotManifest};
use hutch_units::{Bytes, Mebibytes};

#[test]
fn the_record_of_a_machine() {
    let record = MachineRecord {
        format: MachineRecord::FORMAT.to_owned(),
        version: MachineRecord::VERSION,
        engine: EngineKind::Usermode,
        pid: 4711,
        start_time: 376_629,
        boot_id: "1c5a2f0e-5b4f-4f62-9f3c-0d6f1d4b7a11".to_owned(),
        kernel_digest: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned(),
        boot_image_digest: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned(),
        template: Some("0123456789abcdef0123456789abcdef".to_owned()),
        cgroups: vec!["/sys/fs/cgroup/hutch/0123abcd/sb-01kbbbbbbbbbbbbbbbbbbbbbb0".into()],
    };
    let golden = include_str!("golden/machine.json");
    assert_eq!(serde_json::from_str::<MachineRecord>(golden).unwrap(), record);
    let expected: serde_json::Value = serde_json::from_str(golden).unwrap();
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
}

#[test]
fn the_record_of_a_machine_of_version_1_is_read() {
    let record: MachineRecord = serde_json::from_str(include_str!("golden/machine-1.json")).unwrap();
    assert_eq!((record.version, record.pid, record.template), (1, 4711, None));
}

#[test]
fn the_manifest_of_a_saved_machine() {
    let manifest = SnapshotManifest {
        format: SnapshotManifest::FORMAT.to_owned(),
        version: SnapshotManifest::VERSION,
        engine: EngineKind::Usermode,
        kernel_digest: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned(),
        boot_image_digest: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned(),
        base_image: "/var/cache/hutch/images/0123.erofs".into(),
        memory: Mebibytes(256),
        disk: Bytes(10 << 30),
        key: None,
        template: Some("0123456789abcdef0123456789abcdef".to_owned()),
        processor: "0123456789abcdef".to_owned(),
        saved_at_ns: 1_764_567_890_123_456_789,
        saved: Some(Saved { state_digest: "ab".repeat(32), bytes: Bytes(4 << 20), stopped_us: Some(4711) }),
    };
    let golden = include_str!("golden/snapshot.json");
    assert_eq!(serde_json::from_str::<SnapshotManifest>(golden).unwrap(), manifest);
    let expected: serde_json::Value = serde_json::from_str(golden).unwrap();
    assert_eq!(serde_json::to_value(&manifest).unwrap(), expected);
}

#[test]
fn the_description_of_a_guest_directory() {
    let manifest = GuestManifest {
        format: GuestManifest::FORMAT.to_owned(),
        version: GuestManifest::VERSION,
        kernel_release: "7.2.13-hutch".to_owned(),
        kernel_digest: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned(),
        boot_image_digest: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned(),
    };
    let golden = include_str!("golden/guest.json");
    assert_eq!(serde_json::from_str::<GuestManifest>(golden).unwrap(), manifest);
    let expected: serde_json::Value = serde_json::from_str(golden).unwrap();
    assert_eq!(serde_json::to_value(&manifest).unwrap(), expected);
}
