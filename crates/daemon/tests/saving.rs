//! Pause, resume, fork, snapshots and restore with real sandboxes. Needs root, the guest (`cargo xtask guest`) and the
//! image debian:13; without them each test says so and passes.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod lab;

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use hutch_api::{CreateSandbox, CreateSnapshot, ErrorKind, Execute, ExecuteEvent, ForkSandbox, SandboxStatus, Until};
use lab::{Lab, PATIENCE};

/// Counts in memory, grows a file, holds a pipe open, listens, and writes to a database, twenty times a second. What it
/// has done it tells who connects.
const WORKER: &str = r#"
import os, socket, sqlite3, threading, time, uuid, json
count = 0
reader, writer = os.pipe()
log = open('/root/log', 'a', buffering=1)
base = sqlite3.connect('/root/base.db', isolation_level=None, check_same_thread=False)
base.execute('PRAGMA journal_mode=wal')
base.execute('CREATE TABLE IF NOT EXISTS counts (number INTEGER PRIMARY KEY)')
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('127.0.0.1', 4711))
server.listen(16)
def serve():
    while True:
        peer, _ = server.accept()
        os.write(writer, b'x')
        assert os.read(reader, 1) == b'x'
        peer.sendall(json.dumps({'count': count, 'pid': os.getpid(), 'uuid': str(uuid.uuid4()),
                                 'monotonic': time.monotonic(), 'wall': time.time()}).encode())
        peer.close()
threading.Thread(target=serve, daemon=True).start()
while True:
    base.execute('INSERT INTO counts VALUES (?)', (count,))
    log.write(f'{count}\n')
    count += 1
    time.sleep(0.05)
"#;
/// Asks it.
const ASK: &str =
    "python3 -c \"import socket; s=socket.create_connection(('127.0.0.1', 4711), 10); print(s.recv(4096).decode())\"";
/// Compares all that it keeps.
const COMPARE: &str = r#"python3 -c "
import sqlite3
lines = [int(line) for line in open('/root/log')]
assert lines == list(range(len(lines))), lines[-20:]
base = sqlite3.connect('/root/base.db', timeout=10)
rows = [row[0] for row in base.execute('SELECT number FROM counts ORDER BY number')]
assert rows == list(range(len(rows))), rows[-20:]
assert base.execute('PRAGMA integrity_check').fetchone() == ('ok',)
assert abs(len(rows) - len(lines)) <= 1, (len(rows), len(lines))
print(len(rows))
""#;

#[derive(Debug)]
struct Told {
    count: u64,
    pid: u64,
    uuid: String,
}

async fn ask(lab: &Lab, id: &str) -> Told {
    let asked = wall();
    let answer = lab.shell(id, ASK).await;
    let value: serde_json::Value =
        serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    // The guest's clock is the host's, however long the answer took.
    let told = value["wall"].as_f64().unwrap();
    assert!((asked - 0.05..wall() + 0.05).contains(&told), "{told} is not between {asked} and {}", wall());
    Told {
        count: value["count"].as_u64().unwrap(),
        pid: value["pid"].as_u64().unwrap(),
        uuid: value["uuid"].as_str().unwrap().to_owned(),
    }
}

/// Starts the worker and waits until it answers.
async fn employ(lab: &Lab, id: &str) {
    let file = Execute {
        stdin: Some(WORKER.to_owned()),
        cmd: "tee".into(),
        args: vec!["/root/worker.py".into()],
        ..Execute::default()
    };
    lab.client.execute(id, &file).await.unwrap();
    lab.shell(id, "setsid nohup python3 /root/worker.py > /root/out 2>&1 < /dev/null &").await;
    let began = Instant::now();
    while lab.shell(id, ASK).await.exit_code != 0 {
        assert!(began.elapsed() < PATIENCE, "{}", lab.shell(id, "cat /root/out").await.stdout);
    }
}

/// The checks of a disk that nobody writes: an error is one that a journal does not explain.
fn fsck(disk: &std::path::Path) {
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(disk, copy.path()).unwrap();
    // The first look replays the journal, as a mount would; the second must find nothing.
    std::process::Command::new("e2fsck").arg("-fy").arg(copy.path()).output().unwrap();
    let checked = std::process::Command::new("e2fsck").arg("-fn").arg(copy.path()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

fn wall() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// The middle and the nine tenths of some times, in milliseconds.
fn quantiles(times: &mut [Duration]) -> String {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.1} ms, p90 {:.1} ms, max {:.1} ms", at(50), at(90), at(100))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_pauses_lose_nothing() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    employ(&lab, &id).await;
    let cycles: u64 = std::env::var("HUTCH_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(50);
    let first = ask(&lab, &id).await;
    let mut before = first.count;
    let (mut pauses, mut resumes) = (Vec::new(), Vec::new());
    for cycle in 0..cycles {
        let began = Instant::now();
        match cycle % 3 {
            // The answer comes when it is paused, or at once.
            0 => {
                let view = lab
                    .client
                    .pause_sandbox(&id, Until::Settled)
                    .await
                    .unwrap_or_else(|error| panic!("{error}\n{}", lab.tail()));
                assert_eq!(view.status, SandboxStatus::Paused);
                pauses.push(began.elapsed());
                assert!(lab.processes(&id).await.is_empty(), "nothing runs");
            }
            _ => {
                lab.client.pause_sandbox(&id, Until::Accepted).await.unwrap();
                tokio::time::sleep(Duration::from_millis(cycle % 51)).await;
            }
        }
        if cycle % 10 == 9 {
            lab.kill();
            lab.start().await;
        }
        let began = Instant::now();
        let view = lab
            .client
            .resume_sandbox(&id, Until::Settled)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", lab.tail()));
        assert_eq!(view.status, SandboxStatus::Running);
        assert_eq!(lab.shell(&id, "echo back").await.stdout, "back\n");
        resumes.push(began.elapsed());
        let told = ask(&lab, &id).await;
        assert!(told.pid == first.pid && told.count >= before, "{told:?} after {before}, of {first:?}");
        before = told.count;
    }
    println!("pause: {}; resume to the end of the first command: {}", quantiles(&mut pauses), quantiles(&mut resumes));
    let compared = lab.shell(&id, COMPARE).await;
    assert_eq!(compared.exit_code, 0, "{compared:?}");
    lab.client.pause_sandbox(&id, Until::Settled).await.unwrap();
    fsck(&lab.disk(&id));
    lab.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_attached_ends_with_an_error_and_its_process_goes_on() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let request = Execute {
        cmd: "sh".into(),
        args: vec!["-c".into(), "echo begun; sleep 2; echo ended > /root/ended; sleep 600".into()],
        ..Execute::default()
    };
    let mut stream = lab.client.execute_streamed(&id, request).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), Some(ExecuteEvent::Stdout(_))));
    lab.client.pause_sandbox(&id, Until::Settled).await.unwrap();
    let error = loop {
        match stream.next().await {
            Ok(Some(ExecuteEvent::Exit(exit))) => panic!("{exit:?}"),
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream just ended"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("paused"), "{error}");
    let refused = lab.try_shell(&id, "true").await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::WrongState));
    assert!(refused.to_string().contains("sandbox is paused; resume it before executing commands"), "{refused}");
    lab.client.resume_sandbox(&id, Until::Settled).await.unwrap();
    let began = Instant::now();
    while lab.shell(&id, "cat /root/ended").await.stdout != "ended\n" {
        assert!(began.elapsed() < PATIENCE, "the process did not go on");
    }
    lab.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_differ_pairwise_and_know_the_time() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    employ(&lab, &id).await;
    let count = std::env::var("HUTCH_FORKS").ok().and_then(|text| text.parse().ok()).unwrap_or(64);
    let source = ask(&lab, &id).await;
    let began = Instant::now();
    let request = ForkSandbox { count: Some(count), ..ForkSandbox::default() };
    let copies = lab.client.fork_sandbox(&id, &request).await.unwrap_or_else(|error| panic!("{error}\n{}", lab.tail()));
    println!("{count} copies of a running sandbox in {:.0} ms", began.elapsed().as_secs_f64() * 1000.0);
    assert_eq!(copies.len(), usize::try_from(count).unwrap());
    let mut seen: [BTreeSet<String>; 5] = Default::default();
    for copy in copies.iter().map(|copy| copy.id.to_string()).chain([id.clone()]) {
        let told = ask(&lab, &copy).await;
        assert!(told.pid == source.pid && told.count >= source.count);
        let of_it = "head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo; cat /etc/machine-id; hostname; \
                     cat /proc/sys/kernel/random/boot_id";
        let lines = lab.shell(&copy, of_it).await.stdout;
        let values = lines.lines().map(str::to_owned).chain([told.uuid]);
        for (set, value) in seen.iter_mut().zip(values) {
            assert!(set.insert(value.clone()), "{value} of {copy} is another's too");
        }
    }
    assert!(seen.iter().all(|set| set.len() == copies.len() + 1));
    lab.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_and_disk_are_what_they_were_after_everything() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    // 128 MiB of a pattern in memory, of which the process tells the digest whenever it is asked.
    let program = "import hashlib, random, socket\n\
        dice, pattern = random.Random(7), bytearray()\n\
        for _ in range(128): pattern += dice.randbytes(1 << 20)\n\
        server = socket.socket(); server.bind(('127.0.0.1', 4712)); server.listen(4)\n\
        while True:\n    peer, _ = server.accept()\n    peer.sendall(hashlib.sha256(pattern).hexdigest().encode()); peer.close()\n";
    let file = Execute {
        stdin: Some(program.to_owned()),
        cmd: "tee".into(),
        args: vec!["/root/p.py".into()],
        ..Execute::default()
    };
    lab.client.execute(&id, &file).await.unwrap();
    lab.shell(&id, "setsid nohup python3 /root/p.py > /root/out 2>&1 < /dev/null &").await;
    let digest =
        "python3 -c \"import socket; print(socket.create_connection(('127.0.0.1', 4712), 60).recv(99).decode())\"";
    let began = Instant::now();
    let expected = loop {
        let told = lab.shell(&id, digest).await;
        if told.exit_code == 0 {
            break told.stdout;
        }
        assert!(began.elapsed() < 4 * PATIENCE, "{}", lab.shell(&id, "cat /root/out").await.stdout);
    };
    employ(&lab, &id).await;
    let began = Instant::now();
    lab.client.pause_sandbox(&id, Until::Settled).await.unwrap();
    println!("pause with 128 MiB of pattern: {:.0} ms", began.elapsed().as_secs_f64() * 1000.0);
    fsck(&lab.disk(&id));
    lab.client.resume_sandbox(&id, Until::Settled).await.unwrap();
    assert_eq!(lab.shell(&id, digest).await.stdout, expected, "after a pause");
    let snapshot = CreateSnapshot { name: Some("full".to_owned()), ..CreateSnapshot::default() };
    let snapshot = lab.client.create_snapshot(&id, &snapshot).await.unwrap();
    println!("the snapshot takes {} MiB", snapshot.size_bytes >> 20);
    let copy = lab.client.fork_sandbox(&id, &ForkSandbox::default()).await.unwrap().remove(0).id.to_string();
    for (what, of) in [("the copy", &copy), ("its source", &id)] {
        assert_eq!(lab.shell(of, digest).await.stdout, expected, "{what} after a live fork");
        let compared = lab.shell(of, COMPARE).await;
        assert_eq!(compared.exit_code, 0, "{what}: {compared:?}");
    }
    lab.shell(&id, "pkill -f p.py; rm -rf /root/log").await;
    lab.client.restore_snapshot(&id, "full").await.unwrap_or_else(|error| panic!("{error}\n{}", lab.tail()));
    assert_eq!(lab.shell(&id, digest).await.stdout, expected, "after a restore");
    assert_eq!(lab.shell(&id, COMPARE).await.exit_code, 0);
    for of in [&copy, &id] {
        lab.client.pause_sandbox(of, Until::Settled).await.unwrap();
        fsck(&lab.disk(of));
    }
    lab.client.delete_snapshot("full").await.unwrap();
    lab.client.resume_sandbox(&id, Until::Settled).await.unwrap();
    assert_eq!(lab.shell(&id, digest).await.stdout, expected, "after its snapshot is gone");
    lab.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_taken_gone_back_to_begun_from_and_deleted() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let named = |name: &str| CreateSnapshot { name: Some(name.to_owned()), ..CreateSnapshot::default() };
    lab.shell(&id, "echo one > /root/state").await;
    let one = lab.client.create_snapshot(&id, &named("one")).await.unwrap();
    lab.shell(&id, "echo two > /root/state").await;
    lab.client.pause_sandbox(&id, Until::Settled).await.unwrap();
    let two = lab.client.create_snapshot(&id, &named("two")).await.unwrap();
    assert_eq!((one.parent, two.parent), (None, Some(one.id)));
    lab.kill();
    lab.start().await;
    let view = lab.client.restore_snapshot(&id, "one").await.unwrap_or_else(|error| panic!("{error}\n{}", lab.tail()));
    assert_eq!((view.status, view.snapshot), (SandboxStatus::Running, Some(one.id)));
    assert_eq!(lab.shell(&id, "cat /root/state").await.stdout, "one\n");
    let machine = lab.shell(&id, "cat /etc/machine-id").await.stdout;
    let request = CreateSandbox { snapshot: Some("two".to_owned()), ..CreateSandbox::default() };
    let begun = lab.client.create_sandbox(&request).await.unwrap().sandbox.id.to_string();
    assert_eq!(lab.shell(&begun, "cat /root/state").await.stdout, "two\n");
    assert_ne!(lab.shell(&begun, "cat /etc/machine-id").await.stdout, machine);
    for name in ["one", "two"] {
        lab.client.delete_snapshot(name).await.unwrap();
    }
    lab.client.pause_sandbox(&begun, Until::Settled).await.unwrap();
    lab.client.resume_sandbox(&begun, Until::Settled).await.unwrap();
    assert_eq!(lab.shell(&begun, "cat /root/state").await.stdout, "two\n");
    lab.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_of_memory_is_paused_and_brought_back_quickly() {
    let Some(mut lab) = Lab::open().await else { return };
    let request = CreateSandbox {
        shape: "s-1vcpu-1gb".to_owned(),
        rootfs: Some(lab::IMAGE.to_owned()),
        disk_mib: Some(256),
        ..CreateSandbox::default()
    };
    let id = lab.client.create_sandbox(&request).await.unwrap().sandbox.id.to_string();
    let (mut pauses, mut resumes, mut forks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..10 {
        let began = Instant::now();
        lab.client.pause_sandbox(&id, Until::Settled).await.unwrap();
        pauses.push(began.elapsed());
        let began = Instant::now();
        lab.client.resume_sandbox(&id, Until::Settled).await.unwrap();
        lab.shell(&id, "true").await;
        resumes.push(began.elapsed());
        let began = Instant::now();
        let copy = lab.client.fork_sandbox(&id, &ForkSandbox::default()).await.unwrap().remove(0);
        forks.push(began.elapsed());
        lab.client.destroy_sandbox(&copy.id.to_string()).await.unwrap();
    }
    println!("pause: {}", quantiles(&mut pauses));
    println!("resume to the end of the first command: {}", quantiles(&mut resumes));
    println!("live fork: {}", quantiles(&mut forks));
    let metrics = lab.client.metrics().await.unwrap();
    for line in metrics.lines().filter(|line| line.starts_with("hutch_fork_stall_seconds") && !line.contains("bucket"))
    {
        println!("{line}");
    }
    lab.clean().await;
}
