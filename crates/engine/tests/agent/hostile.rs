//! A guest that does not play by the rules can end its own connection and nothing else.

use std::time::Duration;

use hutch_engine::agent::{Client, ClientError, Loss, Options};
use hutch_protocol::credit::INITIAL;
use hutch_protocol::exec::Exec;
use hutch_protocol::files::List;
use hutch_protocol::frame::{Body, Channel, DATA_MAX, Frame, Header, Kind};
use hutch_protocol::preamble::{LENGTH, Preamble};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::rig::PATIENCE;

/// A client of a guest that does this with its connection.
async fn client<F: Future<Output = ()> + Send + 'static>(
    guest: impl FnOnce(UnixStream) -> F + Send + 'static,
) -> Result<Client, ClientError> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut preamble = [0; LENGTH];
        socket.read_exact(&mut preamble).await.unwrap();
        guest(socket).await;
    });
    Client::connect(&path, Options::default(), PATIENCE).await
}

/// A client of a guest that says these bytes after the first request has come.
async fn answered_with(bytes: Vec<u8>) -> Client {
    let guest = async move |mut socket: UnixStream| {
        socket.write_all(&Preamble::OURS.encode()).await.unwrap();
        let mut request = [0; 1024];
        let _ = socket.read(&mut request).await.unwrap();
        // The client may have hung up on the first of it.
        let _ = socket.write_all(&bytes).await;
        // The guest then says nothing more.
        while socket.read(&mut request).await.is_ok_and(|count| count > 0) {}
    };
    client(guest).await.unwrap()
}

fn frames(frames: &[(u32, Body<'_>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (stream, body) in frames {
        Frame { stream: *stream, body: *body }.encode(&mut bytes).unwrap();
    }
    bytes
}

async fn collect(client: &Client) -> Result<(), ClientError> {
    let execution = client.exec(&Exec::shell("true")).await?;
    tokio::time::timeout(PATIENCE, execution.collect(100 << 20)).await.expect("it ends").map(|_| ())
}

#[tokio::test]
async fn broken_frames_are_violations() {
    let data = Header { length: 0, stream: 1, kind: Kind::Data as u8, detail: 1 };
    let chunk = vec![0; DATA_MAX];
    let overrun: Vec<_> = (0..INITIAL as usize / DATA_MAX + 1)
        .map(|_| (1, Body::Data { channel: Channel::Output, bytes: &chunk[..] }))
        .collect();
    let items: Vec<_> = overrun.iter().map(|_| (1, Body::Item(&chunk[..]))).collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("noise", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("an unknown kind", Header { kind: 99, ..data }.encode().to_vec()),
        ("a payload of four gigabytes", Header { length: u32::MAX, ..data }.encode().to_vec()),
        ("a channel that is not", Header { detail: 9, ..data }.encode().to_vec()),
        ("a stream that is not open", frames(&[(2, Body::Result(b"{}"))])),
        ("a stream after its end", frames(&[(1, Body::Error(b"{}")), (1, Body::Error(b"{}"))])),
        ("more data than credit", frames(&overrun)),
        ("more items than credit", frames(&items)),
        (
            "more credit than a channel may have",
            frames(&[(1, Body::Credit { channel: Channel::Input, bytes: u32::MAX })]),
        ),
        ("credit for what only the guest sends", frames(&[(1, Body::Credit { channel: Channel::Output, bytes: 1 })])),
        ("a request", frames(&[(1, Body::Signal(b"{}"))])),
        ("a ping", frames(&[(0, Body::Ping([0; 8]))])),
    ];
    for (name, bytes) in cases {
        let client = answered_with(bytes).await;
        // Nothing is read from the command, so that no credit is given back.
        let execution = client.exec(&Exec::shell("true")).await.unwrap();
        let loss = tokio::time::timeout(PATIENCE, client.lost()).await.expect(name);
        assert!(matches!(loss, Loss::Violation(_)), "{name}: {loss:?}");
        assert!(matches!(collect(&client).await, Err(ClientError::Lost { .. })), "{name}");
        drop(execution);
    }
}

#[tokio::test]
async fn nonsense_in_an_answer_is_an_error_of_that_answer() {
    for json in [&b""[..], b"{", b"[]", b"{\"outcome\":{\"kind\":\"flew_away\"}}", b"\xff"] {
        let client = answered_with(frames(&[(1, Body::Result(json))])).await;
        let result = collect(&client).await;
        assert!(matches!(result, Err(ClientError::Answer { .. })), "{}: {result:?}", json.escape_ascii());
        assert_eq!(client.loss(), None);
    }
    let client = answered_with(frames(&[(1, Body::Item(b"{\"entries\":[{}]}"))])).await;
    let result = client.list(&List { path: "/".into(), depth: 1 }).await.unwrap().collect(10).await;
    assert!(matches!(result, Err(ClientError::Answer { .. })), "{result:?}");
}

#[tokio::test]
async fn a_flood_of_tiny_frames_stays_within_the_credit() {
    let one: Vec<_> = (0..INITIAL)
        .map(|number| {
            let channel = if number % 2 == 0 { Channel::Output } else { Channel::Error };
            (1, Body::Data { channel, bytes: b"x" })
        })
        .collect();
    let ended = serde_json::to_vec(&serde_json::json!({ "outcome": { "kind": "exited", "code": 0 } })).unwrap();
    let mut bytes = frames(&one);
    bytes.extend(frames(&[(1, Body::Result(&ended))]));
    let client = answered_with(bytes).await;
    let collected = client.exec(&Exec::shell("true")).await.unwrap().collect(1 << 20).await.unwrap();
    assert_eq!((collected.stdout.len(), collected.stderr.len()), (INITIAL as usize / 2, INITIAL as usize / 2));
}

#[tokio::test]
async fn other_protocols_and_generations_are_told_apart() {
    let says = |bytes: Vec<u8>| {
        client(async move |mut socket: UnixStream| {
            socket.write_all(&bytes).await.unwrap();
        })
    };
    let result = says(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()).await;
    assert!(matches!(result, Err(ClientError::Preamble { .. })), "{result:?}");
    let newer = Preamble { generation: 900, oldest: 800 };
    let result = says(newer.encode().to_vec()).await;
    assert!(matches!(result, Err(ClientError::Preamble { .. })), "{result:?}");
    let result = says(b"hutch".to_vec()).await;
    assert!(matches!(result, Err(ClientError::Connect { .. })), "{result:?}");
}

#[tokio::test]
async fn a_guest_that_never_answers_runs_into_the_deadline() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("agent.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let result = Client::connect(&path, Options::default(), Duration::from_millis(50)).await;
    assert!(matches!(result, Err(ClientError::Deadline { operation: "connect", .. })), "{result:?}");
    let result = Client::connect(&home.path().join("nothing"), Options::default(), PATIENCE).await;
    assert!(matches!(result, Err(ClientError::Connect { .. })), "{result:?}");

    let long = home.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&long).unwrap();
    let result = Client::connect(&long.join("agent.sock"), Options::default(), PATIENCE).await;
    assert!(
        matches!(&result, Err(ClientError::Connect { source, .. }) if source.kind() == std::io::ErrorKind::NotFound),
        "a path of any length is looked for: {result:?}"
    );
}
