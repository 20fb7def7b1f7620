//! The sent forms, held to what they were when their version was made: a change here is a new version.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use hutch_jail::cgroup::{Controller, Directory, Group, Version};
use hutch_jail::report::{Failure, Outcome, Report, Started, Step};
use hutch_jail::specification::{Descriptor, Limits, Source, Specification, SpecificationError};
use hutch_units::Bytes;

fn check(value: &impl serde::Serialize, golden: &str) {
    let expected: serde_json::Value = serde_json::from_str(golden).unwrap();
    assert_eq!(serde_json::to_value(value).unwrap(), expected);
}

fn specification() -> Specification {
    let descriptor = |number, source| Descriptor { number, source };
    Specification {
        format: Specification::FORMAT.to_owned(),
        version: Specification::VERSION,
        id: "sb-01kbbbbbbbbbbbbbbbbbbbbbb0".parse().unwrap(),
        uid: 0x4000_0001,
        program: "/usr/lib/hutch/guest/linux-um".into(),
        arguments: vec!["linux-um".to_owned(), "mem=256M".to_owned()],
        environment: vec!["TERM=linux".to_owned()],
        mount_point: "/var/lib/hutch/sandboxes/one".into(),
        descriptors: vec![
            descriptor(3, Source::Memory { size: Bytes(256 << 20) }),
            descriptor(4, Source::ReadOnly { path: "/images/base.erofs".into() }),
            descriptor(5, Source::ReadWrite { path: "/sandboxes/one/disk".into() }),
            descriptor(6, Source::Listener { path: "/sandboxes/one/agent.sock".into() }),
        ],
        group: Group {
            version: Version::V1,
            directories: vec![Directory {
                anchor: "/sys/fs/cgroup/memory".into(),
                path: "/sys/fs/cgroup/memory/hutch/0123abcd/one".into(),
                controllers: vec![Controller::Memory],
            }],
        },
        limits: Limits {
            memory: Bytes(512 << 20),
            cpu_percent: 100,
            cpu_weight: 1,
            processes: 768,
            open_files: 896,
            file_size: Bytes(10 << 30),
        },
    }
}

#[test]
fn the_specification() {
    let golden = include_str!("golden/specification.json");
    check(&specification(), golden);
    assert_eq!(Specification::parse(golden.as_bytes()).unwrap(), specification());
}

#[test]
fn the_reports() {
    let started = Started { pid: 4711, start_time: 376_629, microseconds: 2640 };
    check(&Report::new(Outcome::Started(started)), include_str!("golden/started.json"));
    let failure = Failure {
        step: Step::Namespaces,
        subject: "clone".to_owned(),
        cause: "No space left on device (os error 28)".to_owned(),
        hint: Some("raise the sysctls user.max_*_namespaces".to_owned()),
    };
    check(&Report::new(Outcome::Failed(failure)), include_str!("golden/failed.json"));
    assert_eq!(Report::parse(br#"{"format":"hutch-jail-report","version":2,"outcome":{"new":{}}}"#), None);
}

#[test]
fn another_version_is_refused_whatever_else_it_says() {
    let error = Specification::parse(br#"{"format":"hutch-jail-specification","version":7,"x":[]}"#).unwrap_err();
    assert!(matches!(error, SpecificationError::Version { version: 7, .. }), "{error}");
}

#[test]
fn a_wrong_field_is_named() {
    let refused = |change: fn(&mut Specification)| {
        let mut specification = specification();
        change(&mut specification);
        Specification::parse(&serde_json::to_vec(&specification).unwrap()).unwrap_err().to_string()
    };
    assert!(refused(|s| s.uid = 0).contains("`uid`"));
    assert!(refused(|s| s.program = "linux".into()).contains("`program`"));
    assert!(refused(|s| s.arguments.clear()).contains("`arguments`"));
    assert!(refused(|s| s.descriptors[0].number = 2).contains("`descriptors`"));
    assert!(refused(|s| s.descriptors[0].number = 4).contains("`descriptors`"));
    assert!(refused(|s| s.group.directories.clear()).contains("`group`"));
    assert!(refused(|s| s.limits.processes = 0).contains("`limits.processes`"));
}
