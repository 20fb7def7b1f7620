//! What the guest asks for itself, over HTTP and by the FIFO, and who is told.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use hutch_engine::agent::Events;
use hutch_protocol::machine::{Configure, MachineEvent, SelfAction};

use super::rig::{PATIENCE, Rig, configuration};

async fn next(events: &mut Events) -> (SelfAction, Option<String>) {
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes").unwrap();
    match event {
        Some(MachineEvent::SelfSignal { action, reason }) => (action, reason),
        event => panic!("{event:?}"),
    }
}

/// Asks from within the agent's world, as a program there does; the status.
async fn ask(rig: &Rig, method: &str, target: &str) -> String {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; printf '{method} {target} HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n' >&3; \
         head -n 1 <&3 | cut -d' ' -f2",
        rig.signal_port()
    );
    let script = script.replace("%", "%%");
    rig.shell(&format!("bash -c \"{script}\"")).await.trim().to_owned()
}

async fn write(rig: &Rig, text: &str) {
    rig.shell(&format!("printf '{text}' >'{}'", rig.signal_fifo().display())).await;
}

#[tokio::test]
async fn a_guest_is_heard_by_http_and_by_fifo() {
    let rig = Rig::new().await;
    let mut events = rig.client.watch().await.unwrap();
    let reason = |text: &str| Some(text.to_owned());
    assert_eq!(ask(&rig, "POST", "/self/pause").await, "202");
    assert_eq!(next(&mut events).await, (SelfAction::Pause, None));
    assert_eq!(ask(&rig, "POST", "/self/delete?reason=all+done").await, "202");
    assert_eq!(next(&mut events).await, (SelfAction::Delete, reason("all done")));
    assert_eq!(ask(&rig, "GET", "/self/pause").await, "405");
    assert_eq!(ask(&rig, "POST", "/self/resume").await, "404");
    assert_eq!(ask(&rig, "POST", &format!("/self/pause?reason={}", "x".repeat(129))).await, "400");
    for (text, action) in
        [("park\\n", SelfAction::Pause), ("retire", SelfAction::Delete), ("nothing\\nretire\\npark", SelfAction::Pause)]
    {
        write(&rig, text).await;
        assert_eq!(next(&mut events).await, (action, None), "{text}");
    }
    let mode = format!("stat -c '%a %F' '{}'", rig.signal_fifo().display());
    assert_eq!(rig.shell(&mode).await, "622 fifo\n");
    rig.finish().await;
}

/// Nobody watches: the last signal waits. It is told once, and not to another machine.
#[tokio::test]
async fn a_signal_waits_for_a_watcher() {
    let mut rig = Rig::new().await;
    write(&rig, "retire").await;
    assert_eq!(ask(&rig, "POST", "/self/pause?reason=first").await, "202");
    let mut events = rig.client.watch().await.unwrap();
    assert_eq!(next(&mut events).await, (SelfAction::Pause, Some("first".to_owned())));
    drop(events);

    // Ended streams hear nothing; the connection may even be another.
    assert_eq!(ask(&rig, "POST", "/self/delete").await, "202");
    rig = rig.reconnect().await;
    rig.client.configure(&Configure { continues: true, ..configuration() }).await.unwrap();
    let mut events = rig.client.watch().await.unwrap();
    assert_eq!(next(&mut events).await, (SelfAction::Delete, None));
    drop(events);

    // A machine that starts from this one is not asked for.
    assert_eq!(ask(&rig, "POST", "/self/delete").await, "202");
    let fresh = Configure { machine_id: Some("0123456789abcdef".repeat(2)), continues: true, ..configuration() };
    rig.client.configure(&fresh).await.unwrap();
    let mut events = rig.client.watch().await.unwrap();
    assert_eq!(ask(&rig, "POST", "/self/pause?reason=mine").await, "202");
    assert_eq!(next(&mut events).await, (SelfAction::Pause, Some("mine".to_owned())));
    rig.finish().await;
}

#[tokio::test]
async fn a_lost_connection_ends_the_watch_with_an_error() {
    let rig = Rig::new().await;
    let mut events = rig.client.watch().await.unwrap();
    rig.client.close();
    assert!(tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap_err().is_lost());
}

/// A guest that floods makes the host hold one signal, and itself wait for nothing.
#[tokio::test]
async fn a_flood_is_bounded() {
    let rig = Rig::new().await;
    let mut events = rig.client.watch().await.unwrap();
    let fifo = rig.signal_fifo();
    let flood =
        format!("for i in 1 2 3 4; do yes park | head -c 4000000 >'{0}'; done; echo retire >'{0}'", fifo.display());
    rig.shell(&flood).await;
    loop {
        if next(&mut events).await.0 == SelfAction::Delete {
            break;
        }
    }
    rig.shell(&format!("head -c 4000000 /dev/urandom >'{0}'; printf '\\npark\\n' >'{0}'", fifo.display())).await;
    loop {
        // Random bytes may be a word, but the last is this one.
        if next(&mut events).await.0 == SelfAction::Pause {
            break;
        }
    }
    rig.finish().await;
}

/// A connection of a test to the agent's port.
struct Peer(TcpStream);

impl Peer {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn send(mut self, bytes: &[u8]) -> Self {
        // The agent may have closed it already.
        let _ = self.0.write_all(bytes);
        self
    }

    /// All that it says until it closes.
    fn answer(mut self) -> String {
        let _ = self.0.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = self.0.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }
}

#[tokio::test]
async fn malformed_requests_wedge_nobody() {
    let rig = Rig::new().await;
    if rig.pid().is_none() {
        return eprintln!("skipped: the port of the agent at HUTCH_AGENT_SOCKET is not this machine's");
    }
    let port = rig.signal_port();
    let mut random = vec![0_u8; 200_000];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    let long = format!("POST /self/pause?reason={} HTTP/1.1\r\n\r\n", "a".repeat(100_000));
    let headers = format!("POST /self/nothing HTTP/1.1\r\n{}\r\n", "name: value\r\n".repeat(100_000));
    let body = format!("POST /self/nothing HTTP/1.1\r\ncontent-length: 500000\r\n\r\n{}", "b".repeat(500_000));
    let requests: [(&[u8], &str); 12] = [
        (b"", ""),
        (b"\r\n\r\n", "400"),
        (b"GET", "400"),
        (b"GET / HTTP/1.1\r\n", "400"),
        (b"POST /self/pause\r\n\r\n", "400"),
        (b"POST /self/pause HTTP/9.9\r\n\r\n", "505"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", "400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
        (long.as_bytes(), "431"),
        (headers.as_bytes(), "431"),
        (body.as_bytes(), "404"),
        (&random, ""),
    ];
    for (request, status) in requests {
        let answer = Peer::new(port).send(request).answer();
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        if status.is_empty() {
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
        } else {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {answer}");
        }
        assert_eq!(rig.shell("echo ok").await, "ok\n", "{shown}");
    }
    let mut events = rig.client.watch().await.unwrap();
    assert_eq!(ask(&rig, "POST", "/self/delete?reason=%C3%A9").await, "202");
    assert_eq!(next(&mut events).await, (SelfAction::Delete, Some("é".to_owned())), "nothing of that was a signal");
    rig.finish().await;
}

/// Many connections that say nothing, or a byte now and then: who asks is heard all the same, and what they hold
/// of the agent is bounded.
#[tokio::test]
async fn many_connections_keep_nobody_out() {
    let rig = Rig::new().await;
    if rig.pid().is_none() {
        return eprintln!("skipped: the port of the agent at HUTCH_AGENT_SOCKET is not this machine's");
    }
    let port = rig.signal_port();
    let descriptors = "ls /proc/$PPID/fd | wc -l";
    let before: usize = rig.shell(descriptors).await.trim().parse().unwrap();
    let mut events = rig.client.watch().await.unwrap();
    let mut held = Vec::new();
    for number in 0..300_u32 {
        held.push(Peer::new(port).send(if number % 2 == 0 { b"" } else { b"POST /self/pause HTT" }));
        if number % 50 == 0 {
            assert_eq!(ask(&rig, "POST", &format!("/self/pause?reason={number}")).await, "202");
            assert_eq!(next(&mut events).await, (SelfAction::Pause, Some(number.to_string())));
        }
    }
    let during: usize = rig.shell(descriptors).await.trim().parse().unwrap();
    assert!(during < before + 40, "{before} descriptors before, {during} while 300 connections are open");
    drop(held);
    rig.until(&format!("test $({descriptors}) -lt $(({before} + 8)) && echo few"), "few").await;
    rig.finish().await;
}

/// Nothing wakes an agent that has nothing to do, whatever happened before.
#[tokio::test]
async fn an_idle_agent_sleeps() {
    let mut rig = Rig::new().await;
    let Some(pid) = rig.pid() else { return eprintln!("skipped: the agent at HUTCH_AGENT_SOCKET is not ours to see") };
    let _events = rig.client.watch().await.unwrap();
    write(&rig, "park").await;
    assert_eq!(ask(&rig, "POST", "/self/pause").await, "202");
    rig = rig.reconnect().await;
    rig.client.configure(&Configure { continues: true, ..configuration() }).await.unwrap();
    assert_eq!(rig.shell("(sleep 75 >/dev/null 2>&1 &) ; echo ok").await, "ok\n");
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        number("voluntary_ctxt_switches:")
    };
    // Connections of before have their time; then it is still.
    let mut last = switches();
    let mut still = 0;
    let deadline = std::time::Instant::now() + PATIENCE;
    while still < 4 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = switches();
        still = if now == last { still + 1 } else { 0 };
        last = now;
        assert!(std::time::Instant::now() < deadline, "it wakes up again and again");
    }
    rig.shell(&format!("kill $({})", super::commands::listing("sleep 75"))).await;
    rig.finish().await;
}
