//! Golden files: the bytes of every message of this generation, each as a readable text: the header as hex,
//! then the payload as JSON, or as hex where it is none.
//!
//! `HUTCH_BLESS=1 cargo test -p hutch-protocol` rewrites them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use hutch_protocol::exec::{Ended, Exec, Outcome, OutputReport, Signal, SignalTarget, StartStep};
use hutch_protocol::files::*;
use hutch_protocol::frame::{Body, Channel, Frame, HEADER, Kind};
use hutch_protocol::machine::*;
use hutch_protocol::preamble::Preamble;
use hutch_protocol::{ByteText, Code, Decoder, Failure, Operation, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn compare(name: &str, text: &str) {
    let path = path(name);
    if std::env::var_os("HUTCH_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, golden, "{name} is not what this generation sends; see VERSIONING.md");
}

/// Encodes the frame, compares it with its golden file, and decodes it again.
fn check_frame(name: &str, frame: Frame<'_>) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes).unwrap();
    let (header, payload) = bytes.split_at(HEADER);
    let is_json = !matches!(frame.body, Body::Data { .. } | Body::Credit { .. } | Body::Ping(_) | Body::Pong(_));
    let payload = if is_json { String::from_utf8(payload.to_vec()).unwrap() } else { hex(payload) };
    compare(name, &format!("{}\n{payload}\n", hex(header)));
    let mut decoder = Decoder::for_agent();
    decoder.push(&bytes);
    assert_eq!(decoder.next_frame(), Ok(Some(frame)));
}

/// The message through JSON and back, and its frame against the golden file.
fn check_json<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    name: &str,
    message: &T,
    body: impl Fn(&[u8]) -> Body<'_>,
) {
    let json = serde_json::to_vec(message).unwrap();
    check_frame(name, Frame { stream: 7, body: body(&json) });
    assert_eq!(&serde_json::from_slice::<T>(&json).unwrap(), message);
    // A later release adds fields: they must not disturb this one.
    let mut extended = serde_json::to_value(message).unwrap();
    extended.as_object_mut().unwrap().insert("field_of_a_later_release".into(), 1.into());
    assert_eq!(&serde_json::from_value::<T>(extended).unwrap(), message);
}

fn check_request<T: Request + PartialEq + std::fmt::Debug>(request: &T) {
    let name = T::OPERATION.name().replace(' ', "_");
    let operation = T::OPERATION as u8;
    check_json(&format!("open_{name}.txt"), request, |json| Body::Open { operation, request: json });
}

fn check_answer<T: Request>(answer: &T::Answer)
where
    T::Answer: PartialEq + std::fmt::Debug,
{
    let name = T::OPERATION.name().replace(' ', "_");
    check_json(&format!("result_{name}.txt"), answer, |json| Body::Result(json));
}

fn entropy() -> Vec<u8> {
    (0..64).collect()
}

/// A machine that was started from a saved one.
fn fresh() -> Configure {
    Configure {
        entropy: entropy(),
        continues: true,
        machine_id: Some("0123456789abcdef0123456789abcdef".into()),
        ..Configure::default()
    }
}

fn status() -> Status {
    Status {
        kind: FileKind::Link,
        size: 3,
        mode: 0o777,
        uid: 0,
        gid: 10,
        modified_ns: -1,
        links: 1,
        allocated: 4096,
        target: Some("b".into()),
    }
}

#[test]
fn the_preamble() {
    compare("preamble.txt", &format!("{}\n", hex(&Preamble::OURS.encode())));
}

#[test]
fn frames_without_json() {
    check_frame("data.txt", Frame { stream: 7, body: Body::Data { channel: Channel::Output, bytes: b"\0\xff\n" } });
    check_frame("end.txt", Frame { stream: 7, body: Body::End { channel: Channel::Error } });
    check_frame("credit.txt", Frame { stream: 7, body: Body::Credit { channel: Channel::Input, bytes: 131_072 } });
    check_frame("cancel.txt", Frame { stream: u32::MAX, body: Body::Cancel });
    check_frame("ping.txt", Frame { stream: 0, body: Body::Ping(*b"01234567") });
    check_frame("pong.txt", Frame { stream: 0, body: Body::Pong(*b"01234567") });
}

#[test]
fn messages_about_the_machine() {
    check_request(&Configure {
        hostname: "quick-otter".into(),
        wall_ns: Some(1_700_000_000_000_000_000),
        entropy: entropy(),
        env: BTreeMap::from([("A".into(), "b c".into()), ("RAW".into(), vec![0xff].into())]),
        memory_reserve_bytes: Some(16 << 20),
        processes_max: Some(512),
        continues: false,
        machine_id: None,
    });
    check_json("open_configure_fresh.txt", &fresh(), |request| Body::Open {
        operation: Operation::Configure as u8,
        request,
    });
    check_answer::<Configure>(&Configured {
        agent_version: "0.1.0".into(),
        kernel_release: "7.2.13".into(),
        machine: "x86_64".into(),
        boot_wall_ns: 1_700_000_000_000_000_000,
        boot_us: 12_345,
        control_groups: true,
        took_us: 678,
    });
    check_request(&SetClock { wall_ns: 1 });
    check_answer::<SetClock>(&ClockSet { was_ahead_ns: -5 });
    check_request(&Reseed { entropy: entropy() });
    check_answer::<Reseed>(&Reseeded {});
    check_request(&ReadStats {});
    check_answer::<ReadStats>(&Stats {
        uptime_ms: 1,
        memory_total_bytes: 2,
        memory_available_bytes: 3,
        memory_limit_bytes: Some(4),
        memory_current_bytes: Some(5),
        cpu_us: Some(6),
        processes: 7,
        load: [0.5, 0.25, 0.0],
        disk_total_bytes: 8,
        disk_free_bytes: 9,
        execs: 10,
        detached: 11,
        out_of_memory_kills: None,
    });
    check_request(&Shutdown {});
    check_answer::<Shutdown>(&ShuttingDown {});
    check_request(&Warm {});
    check_answer::<Warm>(&Warmed { wall_us: 1234 });
    check_request(&Watch {});
    check_answer::<Watch>(&Watched {});
    let events = [
        ("pause", MachineEvent::SelfSignal { action: SelfAction::Pause, reason: Some("nothing to do é".into()) }),
        ("delete", MachineEvent::SelfSignal { action: SelfAction::Delete, reason: None }),
    ];
    for (name, event) in events {
        check_json(&format!("item_event_{name}.txt"), &event, |json| Body::Item(json));
    }
}

#[test]
fn messages_about_commands() {
    check_request(&Exec {
        cwd: Some("/tmp".into()),
        user: Some("1000:1000".into()),
        env: BTreeMap::from([("A".into(), "b".into())]),
        stdin: true,
        timeout_ms: Some(2000),
        kill_grace_ms: 100,
        max_output_bytes: Some(1 << 20),
        grace_ms: None,
        ..Exec::argv([&b"printf"[..], b"\xff\0"])
    });
    let shell = Exec::shell("echo hi");
    check_json("open_exec_shell.txt", &shell, |request| Body::Open { operation: Operation::Exec as u8, request });
    let outcomes = [
        ("exited", Outcome::Exited { code: 3 }),
        ("signaled", Outcome::Signaled { signal: 11, core_dumped: true }),
        ("timed_out", Outcome::TimedOut {}),
        ("out_of_memory", Outcome::OutOfMemory {}),
        ("cancelled", Outcome::Cancelled {}),
        (
            "failed_to_start",
            Outcome::FailedToStart {
                step: StartStep::Program,
                exit_code: 127,
                errno: 2,
                message: "nope: no such command".into(),
            },
        ),
    ];
    for (name, outcome) in outcomes {
        let ended = Ended {
            outcome,
            stdout: OutputReport { bytes: 5, truncated: true, held: false },
            stderr: OutputReport { bytes: 0, truncated: false, held: true },
            wall_us: 1,
            user_us: 2,
            system_us: 3,
            max_resident_bytes: 4096,
            out_of_memory_kills: 0,
        };
        check_json(&format!("result_exec_{name}.txt"), &ended, |json| Body::Result(json));
    }
    check_json("signal.txt", &Signal { signal: 2, to: SignalTarget::Tree }, |json| Body::Signal(json));
}

#[test]
fn messages_about_files() {
    check_request(&ReadFile { path: "/a\n".into(), offset: 1, length: Some(2) });
    check_answer::<ReadFile>(&Transferred { bytes: 2 });
    check_json("item_status.txt", &status(), |json| Body::Item(json));
    check_request(&WriteFile {
        path: vec![b'/', 0xff].into(),
        mode: Some(0o600),
        user: Some("nobody".into()),
        size: Some(1),
        max_bytes: Some(2),
        sync: true,
    });
    check_request(&Stat { path: "/a".into(), follow: true });
    check_answer::<Stat>(&status());
    check_request(&List { path: "/".into(), depth: 2 });
    let entries = Entries { entries: vec![Entry { path: "a/é".into(), status: status() }] };
    check_json("item_entries.txt", &entries, |json| Body::Item(json));
    check_answer::<List>(&Listed { entries: 1, skipped: 0 });
    check_request(&Move { from: "/a".into(), to: "/b".into(), replace: true });
    check_answer::<Move>(&Done {});
    check_request(&Delete { path: "/a".into(), recursive: true });
    check_request(&MakeDirectory { path: "/a".into(), mode: Some(0o700), user: Some("0:0".into()) });
    check_request(&Archive { path: "/a".into() });
    check_answer::<Archive>(&Archived { members: 3, skipped: 1 });
    let failure = Failure { code: Code::NoSpace, message: "/a: no space left".into(), errno: Some(28) };
    check_json("error.txt", &failure, |json| Body::Error(json));
}

#[test]
fn the_least_request_is_enough() {
    let exec: Exec = serde_json::from_str(r#"{"command":{"shell":"true"}}"#).unwrap();
    assert_eq!(exec, Exec::shell("true"));
    let forever: Exec = serde_json::from_str(r#"{"command":{"shell":"true"},"grace_ms":null}"#).unwrap();
    assert_eq!(forever.grace_ms, None);
    let configure: Configure = serde_json::from_str(r#"{"entropy":""}"#).unwrap();
    assert_eq!(configure, Configure::default(), "a host that does not know of saved machines continues none");
    let list: List = serde_json::from_str(r#"{"path":"/"}"#).unwrap();
    assert_eq!(list.depth, 1);
}

#[test]
fn values_of_a_later_release_are_caught() {
    let failure: Failure = serde_json::from_str(r#"{"code":"something_new","message":"m"}"#).unwrap();
    assert_eq!(failure.code, Code::Other);
    let kind: FileKind = serde_json::from_str("\"portal\"").unwrap();
    assert_eq!(kind, FileKind::Special);
    let event: MachineEvent = serde_json::from_str(r#"{"kind":"on_fire","where":"cpu"}"#).unwrap();
    assert_eq!(event, MachineEvent::Other);
    let event: MachineEvent = serde_json::from_str(r#"{"kind":"self_signal","action":"clone"}"#).unwrap();
    assert_eq!(event, MachineEvent::SelfSignal { action: SelfAction::Other, reason: None });
    assert_eq!(Operation::from_number(255), None);
}

#[test]
fn kinds_and_operations_have_one_number_each() {
    for number in 0..=u8::MAX {
        if let Some(kind) = Kind::from_number(number) {
            assert_eq!(kind as u8, number);
        }
        if let Some(operation) = Operation::from_number(number) {
            assert_eq!(operation as u8, number);
        }
    }
    // A name is a file name above.
    assert_eq!(ByteText::from("x").as_str(), Some("x"));
}
