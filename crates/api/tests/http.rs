//! The HTTP adapter over a real socket, spoken to in plain bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;

use std::time::Duration;

use fake::{ID, KEY, Server};
use hutch_api::http::{Limits, ServeOptions};
use hutch_api::{Access, ForkSandbox, OPERATIONS, Operation};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sends bytes, closes nothing, reads until the other side closes.
async fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("the connection stays open").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

async fn ask(server: &Server, method: &str, target: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let text = raw(server, request.as_bytes()).await;
    let (head, body) =
        text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {method} {target}: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

async fn ask_with_key(server: &Server, method: &str, target: &str, body: &str) -> Answer {
    ask(server, method, target, &format!("X-Api-Key: {KEY}\r\n"), body).await
}

/// A request that an operation accepts.
fn valid(operation: &Operation) -> (String, &'static str) {
    let id = if operation.path.starts_with("/v1/snapshots") { fake::SNAPSHOT } else { ID };
    let mut target = operation.path.replace("{id}", id).replace("{name}", "debian:13").replace("{ip}", "10.0.0.1");
    if operation.query.iter().any(|parameter| parameter.name == "path") {
        target.push_str("?path=/tmp/a+b");
    }
    let body = match operation.id.as_str() {
        "CreateSandbox" => r#"{"shape":"s-1vcpu-256mb"}"#,
        "Execute" => r#"{"cmd":"true"}"#,
        "MoveFile" => r#"{"from":"/tmp/a b","to":"/tmp/c"}"#,
        "MakeDirectory" => r#"{"path":"/tmp/d"}"#,
        "UpdateSandbox" | "ForkSandbox" | "CreateSnapshot" => "{}",
        "RestoreSnapshot" => r#"{"snapshot":"clean"}"#,
        "WriteFile" | "WriteArchive" => "bytes",
        _ => "",
    };
    (target, body)
}

#[tokio::test]
async fn every_operation_is_reachable_and_answers_in_its_form() {
    let server = Server::start().await;
    let file = "/v1/sandboxes/quick-otter/files?path=/tmp/a%20b";
    for operation in OPERATIONS {
        assert_eq!(ask_with_key(&server, "PUT", file, "content").await.status, 200);
        let (target, body) = valid(operation);
        let answer = ask_with_key(&server, operation.method, &target, body).await;
        let begun = matches!(operation.id.as_str(), "PauseSandbox" | "ResumeSandbox");
        let expected = if begun { 202 } else { 200 };
        assert_eq!(answer.status, expected, "{}: {}", operation.id.as_str(), answer.body);
        assert!(answer.head.contains("x-request-id: req_"), "{}", answer.head);
        match operation.response {
            hutch_api::Body::Bytes(media_type) => assert!(answer.head.contains(media_type), "{}", answer.head),
            _ => {
                assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
                assert!(answer.body.starts_with(r#"{"status":"success","data":{"#), "{}", answer.body);
            }
        }
    }
    let asked = server.fake.observed.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(asked, OPERATIONS.len() * 2, "each answer is counted");
}

#[tokio::test]
async fn only_the_open_operations_answer_without_a_key() {
    let server = Server::start().await;
    let open: Vec<&str> = OPERATIONS.iter().filter(|row| row.access == Access::Open).map(|row| row.path).collect();
    assert_eq!(open, ["/healthz", "/readyz", "/v1/shapes", "/v1/rootfs"]);
    for operation in OPERATIONS {
        let (target, body) = valid(operation);
        for headers in ["", "X-Api-Key: skp_wrong\r\n", "X-Api-Key: \r\n", "Authorization: Bearer skp_test\r\n"] {
            let answer = ask(&server, operation.method, &target, headers, body).await;
            let expected = if operation.access == Access::Open { 200 } else { 401 };
            assert_eq!(answer.status, expected, "{} with {headers:?}", operation.id.as_str());
            if expected == 401 {
                assert!(answer.body.contains(r#""code":"unauthenticated""#), "{}", answer.body);
            }
        }
    }
    assert!(server.fake.created.lock().unwrap().is_empty());
}

#[tokio::test]
async fn errors_are_golden() {
    let server = Server::start().await;
    let long = format!(r#"{{"shape":"s","envs":{{"X":"{}"}}}}"#, "x".repeat(4097));
    let cases = [
        ("GET", "/v2/nothing", ""),
        ("PUT", "/v1/sandboxes", ""),
        ("GET", "/v1/sandboxes/sb-1", ""),
        ("GET", "/v1/sandboxes/UPPER", ""),
        ("GET", "/v1/sandboxes?status=asleep", ""),
        ("GET", "/v1/sandboxes?label=novalue", ""),
        ("GET", "/v1/sandboxes?limit=many", ""),
        ("POST", "/v1/sandboxes", ""),
        ("POST", "/v1/sandboxes", "{\n  \"shape\": oops\n}"),
        ("POST", "/v1/sandboxes", r#"{"shape":7}"#),
        ("POST", "/v1/sandboxes", r#"{"name":"a"}"#),
        ("POST", "/v1/sandboxes", r#"{"shape":"s","name":"No Name"}"#),
        ("POST", "/v1/sandboxes", r#"{"shape":"s","envs":{"1BAD":"x"}}"#),
        ("POST", "/v1/sandboxes", &long),
        ("POST", "/v1/sandboxes", r#"{"shape":"s-8vcpu-16gb"}"#),
        ("POST", "/v1/sandboxes", r#"{"shape":"s","name":"quick-otter"}"#),
        ("POST", "/v1/sandboxes", r#"{"shape":"s","rootfs":"building:1"}"#),
        ("POST", "/v1/sandboxes", r#"{"shape":"s","name":"unlucky"}"#),
        ("POST", "/v1/sandboxes", r#"{"snapshot":"No"}"#),
        ("POST", "/v1/sandboxes/nobody/pause", ""),
        ("POST", "/v1/sandboxes/quick-otter/resume?wait=perhaps", ""),
        ("POST", "/v1/sandboxes/quick-otter/fork", r#"{"count":101}"#),
        ("POST", "/v1/sandboxes/quick-otter/fork", r#"{"count":"2"}"#),
        ("POST", "/v1/sandboxes/quick-otter/fork", r#"{"name":"-"}"#),
        ("POST", "/v1/sandboxes/quick-otter/snapshots", r#"{"name":"taken"}"#),
        ("POST", "/v1/sandboxes/quick-otter/snapshots", r#"{"name":"a/b"}"#),
        ("POST", "/v1/sandboxes/quick-otter/restore", ""),
        ("POST", "/v1/sandboxes/quick-otter/restore", r#"{"snapshot":"gone"}"#),
        ("GET", "/v1/snapshots?name=A", ""),
        ("DELETE", "/v1/snapshots/sn-1", ""),
        ("GET", "/v1/usage?from=yesterday", ""),
        ("GET", "/v1/usage?from=2026-02-01&to=2026-01-01", ""),
        ("POST", "/v1/sandboxes/quick-otter/exec", r#"{"cmd":"paused"}"#),
        ("POST", "/v1/sandboxes/quick-otter/exec", r#"{"cmd":"panic"}"#),
        ("POST", "/v1/sandboxes/quick-otter/exec", r#"{"cmd":"lost"}"#),
        ("POST", "/v1/sandboxes/quick-otter/exec", r#"{"cmd":"cut"}"#),
        ("POST", "/v1/sandboxes/quick-otter/exec", r#"{"cmd":"true","cwd":"tmp"}"#),
        ("GET", "/v1/sandboxes/quick-otter/files", ""),
        ("GET", "/v1/sandboxes/quick-otter/files?path=tmp", ""),
        ("GET", "/v1/sandboxes/quick-otter/files?path=/%ff", ""),
        ("GET", "/v1/sandboxes/quick-otter/files?path=/missing", ""),
        ("PUT", "/v1/sandboxes/quick-otter/files?path=/full", "x"),
        ("PUT", "/v1/sandboxes/quick-otter/files?path=/a&mode=rwx", "x"),
        ("POST", "/v1/sandboxes/quick-otter/files/move", r#"{"from":"a","to":"/b"}"#),
    ];
    let mut text = String::new();
    for (method, target, body) in cases {
        let answer = ask_with_key(&server, method, target, body).await;
        let retry = answer.head.lines().find(|line| line.starts_with("retry-after")).map(|line| format!(" ({line})"));
        let shown: String = body.chars().take(60).collect();
        text.push_str(&format!("{method} {target} {}\n", shown.replace('\n', "\\n")));
        text.push_str(&format!("{}{}\n{}\n\n", answer.status, retry.unwrap_or_default(), answer.body));
    }
    golden("errors.txt", &text);
}

/// Compares with a file; `UPDATE_GOLDEN=1` writes it.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{} differs (UPDATE_GOLDEN=1 writes it):\n{text}", path.display());
}

#[tokio::test]
async fn answers_are_golden() {
    let server = Server::start().await;
    let mut text = String::new();
    for operation in OPERATIONS {
        assert_eq!(
            ask_with_key(&server, "PUT", "/v1/sandboxes/quick-otter/files?path=/tmp/a%20b", "x").await.status,
            200
        );
        let (mut target, body) = valid(operation);
        if operation.id.as_str() == "ListSandboxes" {
            target.push_str("?limit=1");
        }
        let answer = ask_with_key(&server, operation.method, &target, body).await;
        let body = regex_free_times(&answer.body);
        text.push_str(&format!("{} {}\n{body}\n\n", operation.method, operation.path));
    }
    golden("answers.txt", &text);
}

/// Replaces the one measured number.
fn regex_free_times(body: &str) -> String {
    match body.split_once(r#""exec_ms":"#) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == 'e' || c == '-');
            format!("{before}\"exec_ms\":0.0{rest}")
        }
        None => body.to_owned(),
    }
}

#[tokio::test]
async fn not_ready_is_503_with_the_reason() {
    let server = Server::start().await;
    *server.fake.not_ready.lock().unwrap() = Some("no image is built".into());
    let answer = ask(&server, "GET", "/readyz", "", "").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.body, r#"{"status":"fail","data":{"ready":false,"reason":"no image is built"}}"#);
}

#[tokio::test]
async fn what_goes_on_is_202_and_what_is_done_is_200() {
    let server = Server::start().await;
    for (verb, begun, done) in [("pause", "pausing", "paused"), ("resume", "resuming", "running")] {
        let target = format!("/v1/sandboxes/{ID}/{verb}");
        let answer = ask_with_key(&server, "POST", &target, "").await;
        assert_eq!(answer.status, 202);
        assert!(answer.head.contains("x-poll-after: 1"), "{}", answer.head);
        assert!(answer.body.contains(&format!(r#""status":"{begun}""#)), "{}", answer.body);
        assert!(answer.body.contains(r#""created_at":"#), "the answer is the whole view: {}", answer.body);
        let answer = ask_with_key(&server, "POST", &format!("{target}?wait=true"), "").await;
        assert_eq!(answer.status, 200);
        assert!(!answer.head.contains("x-poll-after"), "{}", answer.head);
        assert!(answer.body.contains(&format!(r#""status":"{done}""#)), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_fork_is_one_sandbox_and_with_a_count_a_list() {
    let server = Server::start().await;
    let fork = async |body: &str| ask_with_key(&server, "POST", "/v1/sandboxes/quick-otter/fork", body).await.body;
    for nothing in ["", "{}"] {
        let answer = fork(nothing).await;
        assert!(answer.starts_with(r#"{"status":"success","data":{"id":"sb-"#), "{answer}");
        assert!(answer.contains(&format!(r#""forked_from":"{ID}""#)), "{answer}");
    }
    let answer = fork(r#"{"count":2,"name":"try"}"#).await;
    assert!(answer.starts_with(r#"{"status":"success","data":{"sandboxes":[{"id":"sb-"#), "{answer}");
    assert!(answer.contains(r#""name":"try-1""#) && answer.contains(r#""name":"try-2""#), "{answer}");
    let forks = server.fake.forks.lock().unwrap();
    assert_eq!((&forks[0], &forks[1]), (&ForkSandbox::default(), &ForkSandbox::default()));
}

#[tokio::test]
async fn the_idempotency_key_may_be_a_header() {
    let server = Server::start().await;
    let headers = format!("X-Api-Key: {KEY}\r\nIdempotency-Key: k1\r\n");
    assert_eq!(ask(&server, "POST", "/v1/sandboxes", &headers, r#"{"shape":"s"}"#).await.status, 200);
    assert_eq!(server.fake.created.lock().unwrap()[0].idempotency_key.as_deref(), Some("k1"));
    let both = r#"{"shape":"s","idempotency_key":"k2"}"#;
    assert_eq!(ask(&server, "POST", "/v1/sandboxes", &headers, both).await.status, 400);
}

#[tokio::test]
async fn a_list_clamps_its_limit_and_filters() {
    let server = Server::start().await;
    let target = "/v1/sandboxes?limit=9999&offset=1200&label=a=b&label=job=x+y&status=paused&name=n";
    let answer = ask_with_key(&server, "GET", target, "").await;
    assert!(
        answer.body.ends_with(r#""pagination":{"total":1203,"limit":500,"offset":1200,"count":3}}}"#),
        "{}",
        answer.body
    );
    let filters = server.fake.filters.lock().unwrap();
    assert_eq!(filters[0].labels.len(), 2);
    assert_eq!(filters[0].labels["job"], "x y");
}

#[tokio::test]
async fn a_post_needs_neither_content_nor_type_and_any_accept_will_do() {
    let server = Server::start().await;
    let headers = format!("X-Api-Key: {KEY}\r\nAccept: application/json\r\n");
    assert_eq!(ask(&server, "POST", "/v1/images/debian:13/build", &headers, "").await.status, 200);
    assert_eq!(ask_with_key(&server, "PUT", "/v1/sandboxes/quick-otter/files?path=/f", "x").await.status, 200);
    let answer = ask(&server, "GET", "/v1/sandboxes/quick-otter/files?path=/f", &headers, "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "x"));
}

#[tokio::test]
async fn ranges() {
    let server = Server::start().await;
    ask_with_key(&server, "PUT", "/v1/sandboxes/quick-otter/files?path=/f", "0123456789").await;
    for (range, status, body, content_range) in [
        ("bytes=2-4", 206, "234", "content-range: bytes 2-4/10"),
        ("bytes=-3", 206, "789", "content-range: bytes 7-9/10"),
        ("bytes=8-99", 206, "89", "content-range: bytes 8-9/10"),
        ("bytes=0-1,4-5", 200, "0123456789", "content-length: 10"),
    ] {
        let headers = format!("X-Api-Key: {KEY}\r\nRange: {range}\r\n");
        let answer = ask(&server, "GET", "/v1/sandboxes/quick-otter/files?path=/f", &headers, "").await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{range}");
        assert!(answer.head.contains(content_range), "{}", answer.head);
    }
    let headers = format!("X-Api-Key: {KEY}\r\nRange: bytes=10-\r\n");
    let answer = ask(&server, "GET", "/v1/sandboxes/quick-otter/files?path=/f", &headers, "").await;
    assert_eq!(answer.status, 416);
    assert!(answer.head.contains("content-range: bytes */10"), "{}", answer.head);
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_breaks_the_connection() {
    let server = Server::start().await;
    ask_with_key(&server, "PUT", "/v1/sandboxes/quick-otter/files?path=/shrinks", "0123456789").await;
    let answer = ask_with_key(&server, "GET", "/v1/sandboxes/quick-otter/files?path=/shrinks", "").await;
    assert!(answer.head.contains("content-length: 10"));
    assert_eq!(answer.body, "01234");
}

#[tokio::test]
async fn an_upload_may_come_in_chunks_and_has_a_limit() {
    let limits = Limits { file_bytes: 1 << 20, json_bytes: 1 << 10, ..Limits::default() };
    let server = Server::start_with(limits, ServeOptions::default()).await;
    let target = "/v1/sandboxes/quick-otter/files?path=/f";
    let head = format!("PUT {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Api-Key: {KEY}\r\n");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    assert!(raw(&server, chunked.as_bytes()).await.contains(r#"{"bytes":5,"path":"/f"}"#));

    // Far more than the buffers of two sockets hold: the sender sees the answer only if the rest is read.
    let large = "x".repeat(24 << 20);
    let announced = format!("{head}Content-Length: {}\r\n\r\n{large}", large.len());
    let answer = raw(&server, announced.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("the body is larger than 1.0 MiB"), "{answer}");
    let in_chunks = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let answer = raw(&server, in_chunks.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(server.fake.files.lock().unwrap()["/f"].as_ref(), b"abcde", "the old file is left alone");

    let answer = ask_with_key(&server, "POST", "/v1/sandboxes", &"x".repeat(1025)).await;
    assert_eq!(answer.status, 413);

    // A sender that asks first is not told to go on.
    let asks = format!("{head}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", large.len());
    let answer = raw(&server, asks.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn an_upload_that_stops_half_way_leaves_the_old_file() {
    let server = Server::start().await;
    let target = "/v1/sandboxes/quick-otter/files?path=/f";
    ask_with_key(&server, "PUT", target, "old").await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let half = format!("PUT {target} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {KEY}\r\nContent-Length: 10\r\n\r\nhalf");
    stream.write_all(half.as_bytes()).await.unwrap();
    drop(stream);
    assert_eq!(ask_with_key(&server, "GET", target, "").await.body, "old");
}

#[tokio::test]
async fn http2_is_turned_away_at_once() {
    let server = Server::start().await;
    let answer = raw(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    assert!(!answer.contains("HTTP/2"), "{answer:?}");
}

#[tokio::test]
async fn nonsense_is_answered_and_closed() {
    let server = Server::start().await;
    assert!(raw(&server, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn a_connection_that_sends_no_head_is_closed() {
    let options = ServeOptions { head: Duration::from_millis(200), ..ServeOptions::default() };
    let server = Server::start_with(Limits::default(), options).await;
    raw(&server, b"GET /healthz HT").await;
}

async fn exec_lines(server: &Server, target: &str, body: &str) -> Vec<String> {
    let answer = ask_with_key(server, "POST", target, body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("content-type: application/x-ndjson"), "{}", answer.head);
    // Chunked: the lines that are JSON are the frames.
    answer.body.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_stream_has_one_frame_a_line_and_ends_with_the_exit_code() {
    let server = Server::start().await;
    let exec = "/v1/sandboxes/quick-otter/exec?stream=true";
    let lines = async |body: &str| exec_lines(&server, exec, body).await;
    assert_eq!(
        lines(r#"{"cmd":"both","stream":true}"#).await,
        [r#"{"stdout":"out\n"}"#, r#"{"stderr":"err\n"}"#, r#"{"exit_code":3}"#]
    );
    // € is e2 82 ac; it comes byte by byte and a stray byte stands before it.
    assert_eq!(
        lines(r#"{"cmd":"bytes","args":["ff","e2","82","ac","e2"],"stream":true}"#).await,
        [r#"{"stdout":"�"}"#, r#"{"stdout":"€"}"#, r#"{"stdout":"�"}"#, r#"{"exit_code":0}"#]
    );
    assert_eq!(
        lines(r#"{"cmd":"bytes","args":["ffe2"],"encoding":"base64"}"#).await,
        [r#"{"stdout_base64":"/+I="}"#, r#"{"exit_code":0}"#]
    );
    assert_eq!(
        lines(r#"{"cmd":"timeout"}"#).await[1],
        r#"{"exit_code":124,"signal":"SIGKILL","timed_out":true,"truncated":true,"stdout_truncated":true}"#
    );
    assert_eq!(lines(r#"{"cmd":"nope"}"#).await, [r#"{"error":"nope: no such program"}"#, r#"{"exit_code":127}"#]);
    assert_eq!(lines(r#"{"cmd":"lost"}"#).await[1], r#"{"error":"the kernel died","code":"sandbox_lost"}"#);
    let paused = r#"{"error":"the sandbox was paused while the command ran","code":"sandbox_paused"}"#;
    assert_eq!(lines(r#"{"cmd":"paused"}"#).await[1], paused);
    assert!(lines(r#"{"cmd":"cut"}"#).await[1].starts_with(r#"{"error":"the sandbox stopped answering"#));
    // The body's field alone is enough.
    assert_eq!(exec_lines(&server, "/v1/sandboxes/quick-otter/exec", r#"{"cmd":"true","stream":true}"#).await.len(), 1);
}

#[tokio::test]
async fn a_buffered_answer_is_bounded_and_says_so() {
    let server = Server::start().await;
    let exec = async |body: &str| {
        let answer = ask_with_key(&server, "POST", "/v1/sandboxes/quick-otter/exec", body).await;
        serde_json::from_str::<serde_json::Value>(&answer.body).unwrap()["data"]["result"].take()
    };
    let flood = exec(r#"{"cmd":"flood"}"#).await;
    assert_eq!(flood["stdout"].as_str().unwrap().len(), 16 << 20);
    assert_eq!(flood["truncated"], true);
    let little = exec(r#"{"cmd":"bytes","args":["61e282ac"],"max_output_bytes":2}"#).await;
    assert_eq!((little["stdout"].as_str(), little["stdout_truncated"].as_bool()), (Some("a"), Some(true)));
    let exact = exec(r#"{"cmd":"cat","stdin_base64":"/+I=","encoding":"base64"}"#).await;
    assert_eq!((exact["stdout_base64"].as_str(), exact["stdout"].as_str()), (Some("/+I="), Some("")));
    let missing = exec(r#"{"cmd":"nope"}"#).await;
    assert_eq!((missing["exit_code"].as_i64(), missing["error"].as_str()), (Some(127), Some("nope: no such program")));
}

#[tokio::test]
async fn a_quiet_stream_sends_its_head_and_signs_of_life_at_once() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let body = r#"{"cmd":"silent"}"#;
    let request = format!(
        "POST /v1/sandboxes/quick-otter/exec?stream=true HTTP/1.1\r\nHost: a\r\nX-Api-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    while seen.matches(r#"{"hb":true}"#).count() < 3 {
        let mut buffer = [0; 1024];
        let count = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(count > 0, "closed after {seen}");
        seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    drop(stream);
    server.until_killed(1).await;
}

#[tokio::test]
async fn a_caller_who_goes_away_kills_a_buffered_command_too() {
    // No sign of life would tell here: the broken connection alone must.
    let server = Server::start_with(Limits::default(), ServeOptions::default()).await;
    for query in ["", "?stream=true"] {
        let before = server.fake.killed.load(std::sync::atomic::Ordering::SeqCst);
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let body = r#"{"cmd":"forever"}"#;
        let request = format!(
            "POST /v1/sandboxes/quick-otter/exec{query} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        if !query.is_empty() {
            stream.read_exact(&mut [0; 64]).await.unwrap();
        } else {
            // Give the request time to begin: a connection that closes before is another case.
            while server.fake.killed.load(std::sync::atomic::Ordering::SeqCst) == before
                && tokio::time::timeout(Duration::from_millis(100), stream.readable()).await.is_ok()
            {}
        }
        drop(stream);
        server.until_killed(before + 1).await;
    }
}

#[tokio::test]
async fn a_shutdown_lets_running_requests_finish_and_closes_idle_connections() {
    let mut server = Server::start().await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    idle.read_exact(&mut [0; 16]).await.unwrap();
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "PUT /v1/sandboxes/quick-otter/files?path=/f HTTP/1.1\r\nHost: a\r\nX-Api-Key: {KEY}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    );
    busy.write_all(head.as_bytes()).await.unwrap();
    busy.read_exact(&mut [0; 25]).await.unwrap();
    server.shut_down();
    idle.read_to_end(&mut Vec::new()).await.unwrap();
    busy.write_all(b"late").await.unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(r#""bytes":4"#), "{answer}");
    tokio::time::timeout(Duration::from_secs(20), &mut server.task).await.expect("the service ends").unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_shutdown_has_a_deadline() {
    let options = ServeOptions { grace: Duration::from_millis(100), ..ServeOptions::default() };
    let mut server = Server::start_with(Limits::default(), options).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let body = r#"{"cmd":"forever"}"#;
    let request = format!(
        "POST /v1/sandboxes/quick-otter/exec?stream=true HTTP/1.1\r\nHost: a\r\nX-Api-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 64]).await.unwrap();
    server.shut_down();
    tokio::time::timeout(Duration::from_secs(20), &mut server.task).await.expect("the service ends").unwrap();
    server.until_killed(1).await;
}
