//! The daemon on this host with real sandboxes. Needs root, the guest (`cargo xtask guest`) and the image debian:13;
//! without them each test says so and passes.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod lab;

use bytes::Bytes;
use futures_util::stream;
use hutch_api::client::{Client, ClientError};
use hutch_api::{
    ByteRange, Encoding, ErrorKind, Execute, ExecuteEvent, FileKind, MakeDirectory, MoveFile, SandboxStatus,
};
use lab::Lab;

/// A content of one piece.
fn content(bytes: impl Into<Bytes>) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let bytes = bytes.into();
    stream::once(async move { Ok(bytes) })
}

async fn read(client: &Client, sandbox: &str, path: &str, range: Option<ByteRange>) -> Result<Vec<u8>, ClientError> {
    let mut download = client.read_file(sandbox, path, range).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = download.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

#[tokio::test]
async fn a_sandbox_from_its_create_to_its_end() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let view = lab.client.sandbox(&id).await.unwrap();
    println!("created in {:.0} ms", view.spawn_ms.unwrap());
    let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_ne!(lab.shell(&id, "uname -r").await.stdout, host, "a kernel of its own");
    assert_eq!(lab.shell(&id, "pwd; hostname").await.stdout, format!("/root\n{}\n", view.name.unwrap()));
    assert_eq!(lab.client.destroy_sandbox(&id).await.unwrap().status, SandboxStatus::Destroyed);
    assert_eq!(lab.client.destroy_sandbox(&id).await.unwrap().status, SandboxStatus::Destroyed);
    let gone = lab.try_shell(&id, "true").await.unwrap_err();
    assert_eq!(gone.kind(), Some(ErrorKind::WrongState), "{gone}");
    lab.clean().await;
}

#[tokio::test]
async fn commands_end_in_the_ways_that_commands_end() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let run = async |execute: Execute| lab.client.execute(&id, &execute).await.unwrap().result;
    let shell = |text: &str| Execute { cmd: "sh".into(), args: vec!["-c".into(), text.into()], ..Execute::default() };
    assert_eq!(run(shell("exit 7")).await.exit_code, 7);
    let killed = run(shell("kill -SEGV $$")).await;
    assert_eq!((killed.exit_code, killed.signal.as_deref()), (139, Some("SIGSEGV")));
    let missing = run(Execute { cmd: "no-such-program".into(), ..Execute::default() }).await;
    assert!(missing.exit_code == 127 && missing.error.is_some(), "{missing:?}");
    let late = run(Execute { timeout_ms: Some(500), ..shell("printf x; sleep 60") }).await;
    assert!(late.timed_out && late.stdout == "x" && late.exit_code == 124, "{late:?}");
    let fed = run(Execute { stdin: Some("a\nb\n".into()), ..shell("sort -r") }).await;
    assert_eq!(fed.stdout, "b\na\n");
    // More input than any buffer holds, to a command that does not read it.
    let ignored = run(Execute { stdin: Some("x".repeat(4 << 20)), ..shell("echo done") }).await;
    assert_eq!(ignored.stdout, "done\n");
    let cut = run(Execute { max_output_bytes: Some(10), ..shell("seq 100000") }).await;
    assert!(cut.stdout_truncated && cut.stdout == "1\n2\n3\n4\n5\n", "{cut:?}");
    let binary = run(Execute { encoding: Some(Encoding::Base64), ..shell("printf '\\377\\000'") }).await;
    assert_eq!(binary.stdout_base64.as_deref(), Some("/wA="));
    let background = run(shell("(sleep 60 &) ; echo back")).await;
    assert_eq!(background.stdout, "back\n");
    lab.clean().await;
}

#[tokio::test]
async fn files_of_every_kind() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let client = lab.client.clone();
    let written =
        client.write_file(&id, "/data/new dir/ä.txt", Some(0o640), None, content("hello world")).await.unwrap();
    assert_eq!(written.bytes, 11);
    assert_eq!(read(&client, &id, "/data/new dir/ä.txt", None).await.unwrap(), b"hello world");
    let range = |range| read(&client, &id, "/data/new dir/ä.txt", Some(range));
    assert_eq!(range(ByteRange::From { first: 6, last: Some(8) }).await.unwrap(), b"wor");
    assert_eq!(range(ByteRange::Last(5)).await.unwrap(), b"world");
    let outside = range(ByteRange::From { first: 11, last: None }).await.unwrap_err();
    assert_eq!(outside.kind(), Some(ErrorKind::RangeNotSatisfiable));
    let status = client.stat_file(&id, "/data/new dir/ä.txt").await.unwrap();
    assert_eq!((status.kind, status.size, status.mode, status.name.as_str()), (FileKind::File, 11, 0o640, "ä.txt"));
    assert!(!read(&client, &id, "/proc/version", None).await.unwrap().is_empty(), "made when it is read");
    let missing = read(&client, &id, "/nothing", None).await.unwrap_err();
    assert_eq!(missing.kind(), Some(ErrorKind::NotFound));
    let directory = read(&client, &id, "/data", None).await.unwrap_err();
    assert_eq!(directory.kind(), Some(ErrorKind::Conflict), "{directory}");

    let wanted = MakeDirectory { path: path("/data/b/c"), mode: None };
    assert!(client.make_directory(&id, &wanted).await.unwrap().created);
    assert!(!client.make_directory(&id, &wanted).await.unwrap().created);
    let names = async |path: &str| -> Vec<String> {
        client.list_files(&id, path).await.unwrap().into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names("/data").await, ["b", "new dir"]);
    let renamed = MoveFile { from: path("/data/new dir/ä.txt"), to: path("/data/b/moved"), overwrite: false };
    client.move_file(&id, &renamed).await.unwrap();
    assert_eq!(names("/data/b").await, ["c", "moved"]);
    let full = client.remove_file(&id, "/data", false).await.unwrap_err();
    assert_eq!(full.kind(), Some(ErrorKind::Conflict), "{full}");
    client.remove_file(&id, "/data", true).await.unwrap();
    assert_eq!(client.stat_file(&id, "/data").await.unwrap_err().kind(), Some(ErrorKind::NotFound));
    lab.clean().await;
}

fn path(text: &str) -> hutch_api::GuestPath {
    hutch_api::GuestPath::parse("path", text).unwrap()
}

#[tokio::test]
async fn archives_go_out_and_come_back() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    lab.shell(&id, "mkdir -p /a/sub; echo one > /a/1; ln -s 1 /a/link; head -c 300000 /dev/urandom > /a/sub/big").await;
    let mut download = lab.client.read_archive(&id, "/a").await.unwrap();
    let mut archive = Vec::new();
    while let Some(piece) = download.next().await.unwrap() {
        archive.extend_from_slice(&piece);
    }
    let length = archive.len() as u64;
    let written = lab.client.write_archive(&id, "/b/c", content(archive)).await.unwrap();
    assert_eq!(written.bytes, length);
    assert_eq!(lab.shell(&id, "diff -r /a /b/c && readlink /b/c/link").await.stdout, "1\n");
    let bad = lab.client.write_archive(&id, "/b/d", content("no archive".repeat(1000))).await.unwrap_err();
    assert_eq!(bad.kind(), Some(ErrorKind::InvalidRequest), "{bad}");
    let missing = lab.client.read_archive(&id, "/missing").await.err().unwrap();
    assert_eq!(missing.kind(), Some(ErrorKind::NotFound));
    lab.clean().await;
}

#[tokio::test]
async fn a_full_disk_is_the_sandboxs_own_problem() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let announced = lab.client.write_file(&id, "/big", None, Some(400 << 20), endless(400)).await.unwrap_err();
    assert_eq!(announced.kind(), Some(ErrorKind::StorageFull), "{announced}");
    let chunked = lab.client.write_file(&id, "/big", None, None, endless(400)).await;
    let filled = lab.shell(&id, "cat /dev/zero > /filler; df --output=avail / | tail -1").await;
    assert!(filled.stderr.contains("No space left"), "{filled:?} {chunked:?}");
    let small = lab.client.write_file(&id, "/more", None, None, endless(8)).await.unwrap_err();
    assert_eq!(small.kind(), Some(ErrorKind::StorageFull), "{small}");
    assert_eq!(lab.shell(&id, "rm -f /filler /big; echo alive").await.stdout, "alive\n");
    lab.clean().await;
}

/// So many mebibytes.
fn endless(mebibytes: usize) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    stream::iter((0..mebibytes).map(|_| Ok(Bytes::from(vec![7; 1 << 20]))))
}

#[tokio::test]
async fn sandboxes_outlive_the_daemon() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    lab.shell(&id, "echo kept > /root/file; (sleep 3600 >/dev/null 2>&1 &)").await;
    for round in 0..2 {
        if round == 0 {
            lab.kill();
        } else {
            assert!(lab.stop(), "{}", lab.tail());
        }
        println!("ready again after {} ms", lab.start().await.as_millis());
        assert_eq!(lab.shell(&id, "cat /root/file; pgrep -c sleep").await.stdout, "kept\n1\n");
    }
    lab.clean().await;
}

#[tokio::test]
async fn the_death_of_a_kernel_is_seen_by_everybody() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let request =
        Execute { cmd: "sh".into(), args: vec!["-c".into(), "echo begun; sleep 1000".into()], ..Execute::default() };
    let mut stream = lab.client.execute_streamed(&id, request).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), Some(ExecuteEvent::Stdout(_))));
    let kernel = lab.processes(&id).await[0];
    let pid = rustix::process::Pid::from_raw(kernel).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    println!("seen after {} ms", lab.until(&id, SandboxStatus::Failed).await.as_millis());
    let error = loop {
        match stream.next().await {
            Ok(Some(ExecuteEvent::Exit(exit))) => panic!("an end that nobody saw: {exit:?}"),
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended as if all was well"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("lost"), "{error}");
    assert!(lab.client.sandbox(&id).await.unwrap().reason.unwrap().contains("kernel"));
    lab.until_bare().await;
    assert_eq!(lab.client.destroy_sandbox(&id).await.unwrap().status, SandboxStatus::Destroyed);
    lab.clean().await;
}

#[tokio::test]
async fn a_guest_may_shut_itself_down() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    // LINUX_REBOOT_CMD_POWER_OFF of reboot(2).
    let off = "python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'; sleep 60";
    let lost = lab.try_shell(&id, off).await.unwrap_err();
    assert_eq!(lost.kind(), Some(ErrorKind::SandboxLost), "{lost}");
    lab.until(&id, SandboxStatus::Failed).await;
    lab.clean().await;
}

#[tokio::test]
async fn who_hangs_up_kills_the_command() {
    let Some(mut lab) = Lab::open().await else { return };
    let id = lab.create().await;
    let request = Execute { cmd: "sleep".into(), args: vec!["7771".into()], ..Execute::default() };
    let stream = lab.client.execute_streamed(&id, request).await.unwrap();
    assert_eq!(lab.shell(&id, "pgrep -cf '[s]leep 7771'").await.stdout, "1\n");
    drop(stream);
    let began = std::time::Instant::now();
    while lab.shell(&id, "pgrep -cf '[s]leep 7771'").await.stdout != "0\n" {
        assert!(began.elapsed() < lab::PATIENCE, "the command runs on");
    }
    lab.clean().await;
}
