//! What holds for every input of the decoder.

use hutch_protocol::frame::{Body, CONTROL_MAX, Channel, DATA_MAX, Frame, HEADER, Header, Kind, OPEN_MAX};
use hutch_protocol::machine::{Configure, MachineEvent, SelfAction};
use hutch_protocol::{ByteText, DecodeError, Decoder};
use proptest::prelude::*;

/// A frame that owns its payload.
#[derive(Debug, Clone)]
struct Owned {
    stream: u32,
    kind: usize,
    channel: Channel,
    number: u32,
    payload: Vec<u8>,
}

impl Owned {
    fn frame(&self) -> Frame<'_> {
        let (channel, bytes) = (self.channel, self.payload.as_slice());
        let token = u64::from(self.number).to_le_bytes();
        let body = match self.kind {
            0 => Body::Open { operation: self.number as u8, request: bytes },
            1 => Body::Data { channel, bytes },
            2 => Body::End { channel },
            3 => Body::Credit { channel, bytes: self.number },
            4 => Body::Item(bytes),
            5 => Body::Result(bytes),
            6 => Body::Error(bytes),
            7 => Body::Cancel,
            8 => Body::Signal(bytes),
            9 => return Frame { stream: 0, body: Body::Ping(token) },
            _ => return Frame { stream: 0, body: Body::Pong(token) },
        };
        Frame { stream: self.stream, body }
    }
}

fn frames() -> impl Strategy<Value = Vec<Owned>> {
    let channel = prop_oneof![Just(Channel::Input), Just(Channel::Output), Just(Channel::Error)];
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    let one = (1..=u32::MAX, 0_usize..11, channel, any::<u32>(), payload)
        .prop_map(|(stream, kind, channel, number, payload)| Owned { stream, kind, channel, number, payload });
    prop::collection::vec(one, 0..20)
}

fn configurations() -> impl Strategy<Value = Configure> {
    let env = prop::collection::btree_map(".{1,8}", prop::collection::vec(any::<u8>(), 0..20), 0..4);
    let bytes = prop::collection::vec(any::<u8>(), 0..100);
    let numbers = (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>());
    (".*", numbers, bytes, env, any::<bool>(), prop::option::of(".*")).prop_map(
        |(hostname, (wall_ns, memory_reserve_bytes, processes_max), entropy, env, continues, machine_id)| Configure {
            hostname,
            wall_ns,
            entropy,
            env: env.into_iter().map(|(name, value)| (name, ByteText::from(value))).collect(),
            memory_reserve_bytes,
            processes_max,
            continues,
            machine_id,
        },
    )
}

fn events() -> impl Strategy<Value = MachineEvent> {
    let action = prop_oneof![Just(SelfAction::Pause), Just(SelfAction::Delete)];
    (action, prop::option::of(".*")).prop_map(|(action, reason)| MachineEvent::SelfSignal { action, reason })
}

proptest! {
    #[test]
    fn what_is_told_and_asked_survives_the_wire(configure in configurations(), event in events()) {
        let json = serde_json::to_vec(&configure).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Configure>(&json).unwrap(), configure);
        let json = serde_json::to_vec(&event).unwrap();
        prop_assert_eq!(serde_json::from_slice::<MachineEvent>(&json).unwrap(), event);
    }

    /// A guest can send anything as an event: it is one, or an error.
    #[test]
    fn arbitrary_events_are_judged(kind in "[a-z_]{0,12}", action in ".*", reason in any::<Option<i32>>()) {
        let json = serde_json::json!({ "kind": kind, "action": action, "reason": reason });
        match serde_json::from_value::<MachineEvent>(json) {
            Ok(MachineEvent::SelfSignal { .. }) => prop_assert!(kind == "self_signal" && reason.is_none()),
            Ok(MachineEvent::Other) => prop_assert_ne!(kind, "self_signal"),
            Err(_) => prop_assert!(kind == "self_signal" && reason.is_some()),
        }
    }

    #[test]
    fn frames_survive_the_wire_however_it_is_cut(frames in frames(), cuts in prop::collection::vec(1_usize..50, 1..50)) {
        let mut wire = Vec::new();
        for frame in &frames {
            frame.frame().encode(&mut wire).unwrap();
        }
        let mut decoder = Decoder::for_agent();
        let (mut rest, mut seen) = (wire.as_slice(), 0);
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            rest = after;
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame().unwrap() {
                prop_assert_eq!(frame, frames[seen].frame());
                seen += 1;
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(seen, frames.len());
        prop_assert!(decoder.is_empty());
    }

    #[test]
    fn arbitrary_bytes_are_frames_or_an_error_and_never_a_panic(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..32),
    ) {
        for mut decoder in [Decoder::for_agent(), Decoder::for_host()] {
            'pieces: for piece in &pieces {
                decoder.push(piece);
                loop {
                    match decoder.next_frame() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => break 'pieces,
                    }
                }
            }
        }
    }

    /// Nearly valid headers reach further into the decoder than arbitrary bytes do.
    #[test]
    fn arbitrary_headers_are_judged_before_their_payload(
        length in prop_oneof![0_u32..20, any::<u32>()], stream in 0_u32..3, kind in 0_u8..14, detail in 0_u8..5,
    ) {
        let mut decoder = Decoder::for_host();
        decoder.push(&Header { length, stream, kind, detail }.encode());
        match decoder.next_frame() {
            Err(DecodeError::Kind { kind: wrong }) => prop_assert!(Kind::from_number(wrong).is_none()),
            Err(_) => prop_assert!(Kind::from_number(kind).is_some()),
            Ok(Some(_)) => prop_assert_eq!(length, 0),
            // It waits for the payload: then the payload is bounded.
            Ok(None) => prop_assert!(length as usize <= DATA_MAX.max(CONTROL_MAX)),
        }
    }
}

#[test]
fn every_malformation_has_its_error() {
    let error = |header: Header, payload: &[u8]| {
        let mut decoder = Decoder::for_host();
        decoder.push(&header.encode());
        decoder.push(payload);
        decoder.next_frame().unwrap_err()
    };
    let header = Header { length: 0, stream: 1, kind: Kind::Data as u8, detail: 1 };
    assert_eq!(error(Header { kind: 0, ..header }, b""), DecodeError::Kind { kind: 0 });
    assert_eq!(error(Header { kind: 12, ..header }, b""), DecodeError::Kind { kind: 12 });
    let too_long = DATA_MAX as u32 + 1;
    assert_eq!(
        error(Header { length: too_long, ..header }, b""),
        DecodeError::Length { kind: Kind::Data, length: too_long }
    );
    let open = Header { kind: Kind::Open as u8, length: 1, ..header };
    assert_eq!(error(open, b"x"), DecodeError::Length { kind: Kind::Open, length: 1 }, "agents open no streams");
    let credit = Header { kind: Kind::Credit as u8, length: 3, ..header };
    assert_eq!(error(credit, b"xxx"), DecodeError::Length { kind: Kind::Credit, length: 3 });
    assert_eq!(error(Header { detail: 3, ..header }, b""), DecodeError::Channel { kind: Kind::Data, channel: 3 });
    assert_eq!(error(Header { stream: 0, ..header }, b""), DecodeError::Stream { kind: Kind::Data, stream: 0 });
    let ping = Header { kind: Kind::Ping as u8, length: 8, ..header };
    assert_eq!(error(ping, &[0; 8]), DecodeError::Stream { kind: Kind::Ping, stream: 1 });
}

#[test]
fn a_promise_of_a_long_payload_takes_no_memory() {
    let mut decoder = Decoder::for_agent();
    decoder.push(&Header { length: OPEN_MAX as u32, stream: 1, kind: Kind::Open as u8, detail: 16 }.encode());
    assert_eq!(decoder.next_frame(), Ok(None));
    assert_eq!(decoder.space(1).len(), 1);
}

#[test]
fn a_long_open_passes_and_its_memory_is_given_back() {
    let request = vec![b'x'; OPEN_MAX];
    let mut wire = Vec::new();
    Frame { stream: 1, body: Body::Open { operation: 16, request: &request } }.encode(&mut wire).unwrap();
    let mut decoder = Decoder::for_agent();
    for piece in wire.chunks(HEADER * 1000 + 1) {
        assert_eq!(decoder.next_frame(), Ok(None));
        decoder.push(piece);
    }
    assert!(decoder.next_frame().unwrap().is_some());
    assert!(decoder.space(1000).len() <= 256 << 10);

    let request = vec![b'x'; OPEN_MAX + 1];
    let too_long = Frame { stream: 1, body: Body::Open { operation: 16, request: &request } };
    wire.clear();
    assert!(too_long.encode(&mut wire).is_err());
    assert!(wire.is_empty());
}
