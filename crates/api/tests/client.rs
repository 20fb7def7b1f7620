//! The client against the adapter, over a real socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;

use std::io;

use bytes::Bytes;
use fake::{ID, KEY, Server};
use futures_util::stream;
use hutch_api::client::{Client, ClientError, Endpoint};
use hutch_api::http::{Limits, ServeOptions, Tls};
use hutch_api::*;

fn client(server: &Server) -> Client {
    Client::new(Endpoint::parse(&format!("http://{}", server.address), Some(KEY), None).unwrap())
}

fn refusal(error: ClientError) -> (Option<ErrorKind>, String) {
    (error.kind(), error.to_string())
}

fn pieces(count: usize, size: usize) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::iter((0..count).map(move |number| Ok(Bytes::from(vec![u8::try_from(number % 251).unwrap(); size]))))
}

#[tokio::test]
async fn every_call_of_the_catalogue() {
    let server = Server::start().await;
    let client = client(&server);
    assert!(client.health().await.unwrap().up);
    assert!(client.ready().await.unwrap().ready);
    assert_eq!(client.who_am_i().await.unwrap().user_id, "account");
    assert_eq!(client.shapes().await.unwrap().len(), 9);
    assert_eq!(client.rootfs().await.unwrap().default, "devbox:1");
    assert_eq!(client.hosts().await.unwrap().len(), 1);
    assert!(client.doctor().await.unwrap().is_healthy());
    assert_eq!(client.audit().await.unwrap().orphans().count(), 1);
    assert_eq!(client.images().await.unwrap().len(), 2);
    assert_eq!(client.image("a/b:1").await.unwrap().name, "a/b:1");
    assert_eq!(client.build_image("debian:13").await.unwrap().status, ImageStatus::Building);
    assert_eq!(client.metrics().await.unwrap(), "hutch_sandboxes 1\n");
}

#[tokio::test]
async fn sandboxes() {
    let server = Server::start().await;
    let client = client(&server);
    let request = CreateSandbox { shape: "s-1vcpu-256mb".into(), ..Default::default() };
    let created = client.create_sandbox(&request).await.unwrap();
    assert_eq!(created.sandbox.network.as_deref(), Some("loopback"));
    assert_eq!(client.sandbox(ID).await.unwrap(), fake::view());
    assert_eq!(client.sandbox_by_ip("10.0.0.1").await.unwrap().id, fake::id());
    assert_eq!(client.list_sandboxes(&SandboxFilter::default()).await.unwrap().len(), 1203);
    let change = UpdateSandbox { labels: Some([("a".into(), "b".into())].into()), ..Default::default() };
    assert_eq!(client.update_sandbox(ID, &change).await.unwrap().labels["a"], "b");
    assert_eq!(client.destroy_sandbox("quick-otter").await.unwrap().status, SandboxStatus::Destroyed);
    let (kind, message) = refusal(client.sandbox("nobody").await.unwrap_err());
    assert_eq!((kind, message.as_str()), (Some(ErrorKind::NotFound), "there is no sandbox \"nobody\""));
    let building = CreateSandbox { rootfs: Some("building:1".into()), ..request };
    match client.create_sandbox(&building).await.unwrap_err() {
        ClientError::Refused(refusal) => {
            assert_eq!(refusal.retry_after, Some(std::time::Duration::from_secs(2)));
            assert!(refusal.request_id.is_some_and(|id| id.starts_with("req_")));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn pause_resume_and_fork() {
    let server = Server::start().await;
    let client = client(&server);
    assert_eq!(client.pause_sandbox(ID, Until::Accepted).await.unwrap().status, SandboxStatus::Pausing);
    assert_eq!(client.pause_sandbox(ID, Until::Settled).await.unwrap().status, SandboxStatus::Paused);
    assert!(client.sandbox(ID).await.unwrap().paused_at.is_some());
    assert_eq!(client.resume_sandbox(ID, Until::Accepted).await.unwrap().status, SandboxStatus::Resuming);
    assert_eq!(client.resume_sandbox("quick-otter", Until::Settled).await.unwrap().status, SandboxStatus::Running);
    let one = client.fork_sandbox(ID, &ForkSandbox::default()).await.unwrap();
    assert_eq!((one.len(), one[0].forked_from), (1, Some(fake::id())));
    let counted = ForkSandbox { count: Some(3), name: Some("try".into()), ..Default::default() };
    let copies = client.fork_sandbox(ID, &counted).await.unwrap();
    let names: Vec<&str> = copies.iter().filter_map(|copy| Some(copy.name.as_ref()?.as_str())).collect();
    assert_eq!(names, ["try-1", "try-2", "try-3"]);
    let alone = ForkSandbox { count: Some(1), ..Default::default() };
    assert_eq!(client.fork_sandbox(ID, &alone).await.unwrap().len(), 1, "a list of one is a list");
}

#[tokio::test]
async fn snapshots_and_usage() {
    let server = Server::start().await;
    let client = client(&server);
    let request = CreateSnapshot { name: Some("v1.2".into()), ..Default::default() };
    let taken = client.create_snapshot(ID, &request).await.unwrap();
    assert_eq!(taken.name.map(|name| name.to_string()).as_deref(), Some("v1.2"));
    let sandbox = Some(SandboxReference::parse("quick-otter").unwrap());
    let filter = SnapshotFilter { sandbox, name: Some(hutch_units::SnapshotName::parse("clean").unwrap()) };
    let listed = client.list_snapshots(&filter).await.unwrap();
    assert_eq!((listed.len(), listed[0].parent), (2, Some(listed[1].id)));
    assert_eq!(server.fake.snapshot_filters.lock().unwrap()[0], filter);
    assert_eq!(client.snapshot("clean").await.unwrap().id.to_string(), fake::SNAPSHOT);
    assert_eq!(client.restore_snapshot(ID, "clean").await.unwrap().snapshot, Some(listed[1].id));
    assert!(client.delete_snapshot(fake::SNAPSHOT).await.unwrap().deleted);
    let (kind, message) = refusal(client.delete_snapshot("No Such").await.unwrap_err());
    assert_eq!((kind, message.as_str()), (Some(ErrorKind::NotFound), "there is no snapshot \"No Such\""));

    let period = Period { from: Timestamp::parse("2023-11-14"), to: Timestamp::parse("2023-11-15T00:00:00.250Z") };
    let report = client.usage(period).await.unwrap();
    assert_eq!((report.from, Some(report.to)), (period.from, period.to));
    assert_eq!((report.sandboxes.len(), report.total), (1, report.sandboxes[0].usage));
    assert_eq!(server.fake.usage_queries.lock().unwrap()[0].period, period);
    assert_eq!(client.sandbox_usage(ID, Period::default()).await.unwrap(), report.sandboxes[0]);
}

#[tokio::test]
async fn a_streamed_command_is_exact_and_its_end_is_known() {
    let server = Server::start().await;
    let client = client(&server);
    let run = async |cmd: &str, args: &[&str]| {
        let args = args.iter().map(|text| (*text).to_owned()).collect();
        let request = Execute { cmd: cmd.into(), args, ..Default::default() };
        let mut execution = client.execute_streamed(ID, request).await.unwrap();
        let mut output = Vec::new();
        loop {
            match execution.next().await {
                Ok(Some(ExecuteEvent::Stdout(piece) | ExecuteEvent::Stderr(piece))) => output.extend_from_slice(&piece),
                Ok(Some(ExecuteEvent::Exit(exit))) => {
                    assert_eq!(execution.next().await.unwrap(), None);
                    return (output, Ok(exit));
                }
                Ok(None) => panic!("no exit"),
                Err(error) => return (output, Err(error)),
            }
        }
    };
    let (output, exit) = run("bytes", &["00ff", "e2"]).await;
    assert_eq!((output.as_slice(), exit.unwrap().exit_code), ([0, 0xff, 0xe2].as_slice(), 0));
    let (output, _) = run("flood", &[]).await;
    assert_eq!(output.len(), 32 << 20);
    let exit = run("nope", &[]).await.1.unwrap();
    assert_eq!((exit.exit_code, exit.error.as_deref()), (127, Some("nope: no such program")));
    assert!(run("timeout", &[]).await.1.unwrap().timed_out);
    let (output, error) = run("lost", &[]).await;
    assert_eq!((output.as_slice(), error.unwrap_err().kind()), (b"half".as_slice(), Some(ErrorKind::SandboxLost)));
    let (output, error) = run("paused", &[]).await;
    assert_eq!((output.as_slice(), error.unwrap_err().kind()), (b"half".as_slice(), Some(ErrorKind::SandboxPaused)));
    assert_eq!(run("cut", &[]).await.1.unwrap_err().kind(), Some(ErrorKind::SandboxLost));

    let request = Execute { cmd: "forever".into(), ..Default::default() };
    let mut execution = client.execute_streamed(ID, request).await.unwrap();
    assert!(matches!(execution.next().await, Ok(Some(ExecuteEvent::Stdout(_)))));
    drop(execution);
    server.until_killed(1).await;
}

#[tokio::test]
async fn a_service_that_dies_while_a_command_runs_is_an_error() {
    let options = ServeOptions { grace: std::time::Duration::ZERO, ..ServeOptions::default() };
    let mut server = Server::start_with(Limits::default(), options).await;
    let request = Execute { cmd: "forever".into(), ..Default::default() };
    let mut execution = client(&server).execute_streamed(ID, request).await.unwrap();
    assert!(execution.next().await.unwrap().is_some());
    server.shut_down();
    assert!(execution.next().await.is_err());
}

#[tokio::test]
async fn files() {
    let server = Server::start().await;
    let client = client(&server);
    let odd = "/tmp/a +&?%2F\n😀";
    let written = client.write_file(ID, odd, Some(0o755), None, pieces(500, 1 << 16)).await.unwrap();
    assert_eq!((written.bytes, written.path.as_str()), (500 << 16, odd));
    let mut download =
        client.read_file(ID, odd, Some(ByteRange::From { first: 1 << 16, last: Some(65537) })).await.unwrap();
    assert_eq!(download.length(), Some(2));
    assert_eq!(download.next().await.unwrap().unwrap().as_ref(), [1, 1]);
    assert_eq!(download.next().await.unwrap(), None);
    assert_eq!(client.stat_file(ID, odd).await.unwrap().size, 500 << 16);
    assert_eq!(client.list_files(ID, "/tmp").await.unwrap().len(), 1);
    let request = MoveFile {
        from: GuestPath::parse("from", odd).unwrap(),
        to: GuestPath::parse("to", "/b").unwrap(),
        overwrite: false,
    };
    assert_eq!(client.move_file(ID, &request).await.unwrap().path, "/b");
    assert!(client.remove_file(ID, "/b", false).await.unwrap().deleted);
    let (kind, _) = refusal(client.remove_file(ID, "/b", false).await.unwrap_err());
    assert_eq!(kind, Some(ErrorKind::NotFound));
    let made = MakeDirectory { path: GuestPath::parse("path", "/d").unwrap(), mode: None };
    assert!(client.make_directory(ID, &made).await.unwrap().created);
    assert_eq!(client.write_archive(ID, "/d", pieces(3, 10)).await.unwrap().bytes, 30);
    assert_eq!(client.read_archive(ID, "/d").await.unwrap().next().await.unwrap().unwrap().as_ref(), b"tar");
}

#[tokio::test]
async fn a_download_that_breaks_off_is_an_error() {
    let server = Server::start().await;
    let client = client(&server);
    client.write_file(ID, "/shrinks", None, Some(10), pieces(1, 10)).await.unwrap();
    let mut download = client.read_file(ID, "/shrinks", None).await.unwrap();
    let end = loop {
        match download.next().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(end, Err(ClientError::Broken { .. })), "{end:?}");
}

#[tokio::test]
async fn an_upload_that_is_too_large_is_told_so_while_it_goes_on() {
    let limits = Limits { file_bytes: 1 << 20, ..Limits::default() };
    let server = Server::start_with(limits, ServeOptions::default()).await;
    for length in [Some(600 << 16), None] {
        let error = client(&server).write_file(ID, "/f", None, length, pieces(600, 1 << 16)).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::TooLarge), "{error:?}");
    }
}

#[tokio::test]
async fn a_source_that_fails_is_not_the_connections_fault() {
    let server = Server::start().await;
    let failing = stream::iter([Ok(Bytes::from_static(b"a")), Err(io::Error::other("disk on fire"))]);
    let error = client(&server).write_file(ID, "/f", None, None, failing).await.unwrap_err();
    match error {
        ClientError::Source(source) => assert_eq!(source.to_string(), "disk on fire"),
        other => panic!("{other:?}"),
    }
    assert!(server.fake.files.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_made_anew() {
    let options = ServeOptions { head: std::time::Duration::from_millis(50), ..ServeOptions::default() };
    let server = Server::start_with(Limits::default(), options).await;
    let client = client(&server);
    for _ in 0..4 {
        client.health().await.unwrap();
        client.build_image("debian:13").await.unwrap();
        // Not a wait for anything: the pause is the case. Whatever the timing, every call must succeed.
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    }
}

#[tokio::test]
async fn nobody_there() {
    let mut server = Server::start().await;
    let client = client(&server);
    server.shut_down();
    (&mut server.task).await.unwrap();
    assert!(matches!(client.health().await, Err(ClientError::Connect { .. })));
}

#[tokio::test]
async fn tls_with_a_certificate_of_ones_own() {
    // A key of no worth, made for this test and valid for a hundred years.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let tls = Some(Tls::load(&certificate, &key).unwrap());
    let server = Server::start_with(Limits::default(), ServeOptions { tls, ..ServeOptions::default() }).await;
    let url = format!("https://localhost:{}", server.address.port());
    let trusting = Client::new(Endpoint::parse(&url, Some(KEY), Some(&certificate)).unwrap());
    assert_eq!(trusting.who_am_i().await.unwrap().user_id, "account");
    let plain = Client::new(Endpoint::parse(&url.replace("https", "http"), Some(KEY), None).unwrap());
    assert!(plain.who_am_i().await.is_err());

    let swapped = Tls::load(&key, &certificate).unwrap_err().to_string();
    assert!(swapped.ends_with("holds no certificate in PEM form"), "{swapped}");
    let missing = Tls::load(&folder.join("none"), &key).unwrap_err().to_string();
    assert!(missing.contains("none cannot be read"), "{missing}");
}
