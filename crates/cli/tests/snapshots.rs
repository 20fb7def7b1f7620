//! Pause, resume, fork, snapshots and usage, as a user types them, against the contract in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod program;

use program::fake::{ID, SNAPSHOT, copy_id};
use program::{run, server};
use serde_json::Value;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Text whose last two words of a line, when they are a time that was measured, are `TIME`.
fn timeless(text: &str) -> String {
    let line = |line: &str| match line.rsplit_once(" in ") {
        Some((before, time)) if time.ends_with(" ms") || time.ends_with(" s") => format!("{before} in TIME\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_and_resume_wait_unless_told_otherwise() {
    let server = server().await;
    let paused = run(&server, &["pause", "quick-otter"]).await;
    assert_eq!((paused.code, paused.stdout.as_str()), (Some(0), ""));
    assert_eq!(timeless(&paused.stderr), format!("paused: quick-otter ({ID}) in TIME\n"));
    assert_eq!(run(&server, &["pause", ID, "--no-wait"]).await.stderr, format!("pausing: quick-otter ({ID})\n"));
    assert_eq!(timeless(&run(&server, &["pause", "--no-wait", "--wait", ID]).await.stderr), timeless(&paused.stderr));

    let json = run(&server, &["resume", ID, "quick-otter", "--json"]).await;
    let views = parsed(&json.stdout);
    assert_eq!((views[0]["status"].as_str(), views.as_array().unwrap().len()), (Some("running"), 2));
    assert_eq!(timeless(&run(&server, &["resume", ID]).await.stderr), format!("running: quick-otter ({ID}) in TIME\n"));
    assert_eq!(run(&server, &["resume", "-q", ID]).await.stderr, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fails_does_not_keep_the_others() {
    let server = server().await;
    let ran = run(&server, &["pause", "nobody", ID, "none"]).await;
    assert_eq!(ran.code, Some(1));
    assert!(timeless(&ran.stderr).starts_with(&format!("paused: quick-otter ({ID}) in TIME\n")), "{}", ran.stderr);
    let expected = "error: 2 failed\n  cause: nobody: there is no sandbox \"nobody\"\n  \
        cause: none: there is no sandbox \"none\"\n";
    assert!(ran.stderr.ends_with(expected), "{}", ran.stderr);
    assert_eq!(run(&server, &["pause"]).await.code, Some(2));
    assert_eq!(run(&server, &["pause", "a", "--all"]).await.code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_all_means_those_that_run_and_resume_all_those_that_are_paused() {
    let server = server().await;
    let label = ["--label", "hutch.run=x"];
    assert_eq!(run(&server, &["resume", label[0], label[1]]).await.stderr, "nothing is paused\n");
    assert_eq!(run(&server, &["pause", label[0], label[1]]).await.stderr, "nothing is running\n");
    let filters = server.fake.filters.lock().unwrap();
    let states: Vec<_> = filters.iter().map(|filter| filter.status.unwrap().as_str()).collect();
    assert_eq!(states, ["paused", "running"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_prints_the_ids_of_the_copies() {
    let server = server().await;
    let one = run(&server, &["fork", "quick-otter", "--name", "try"]).await;
    assert_eq!(one.stdout, format!("{}\n", copy_id(0)));
    assert_eq!(timeless(&one.stderr), format!("running: try ({}) in TIME\n", copy_id(0)));

    let arguments = "fork quick-otter -n 3 --name try --paused --label a=b --auto-pause off --auto-destroy 2h";
    let three = run(&server, &arguments.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(three.stdout, (0..3).map(|position| format!("{}\n", copy_id(position))).collect::<String>());
    let lines: Vec<&str> = three.stderr.lines().collect();
    assert_eq!(lines[2], format!("running: try-3 ({})", copy_id(2)));
    assert_eq!(timeless(lines[3]), "3 copies of quick-otter in TIME\n");
    let json = parsed(&run(&server, &["fork", ID, "--count", "2", "--json"]).await.stdout);
    assert_eq!((json[1]["id"].as_str(), json[1]["forked_from"].as_str()), (Some(&*copy_id(1).to_string()), Some(ID)));

    let forks: Vec<_> = server.fake.forks.lock().unwrap().drain(..).collect();
    assert_eq!(serde_json::to_string(&forks[0]).unwrap(), r#"{"name":"try"}"#, "what is not given is not sent");
    let expected = r#"{"start_paused":true,"count":3,"name":"try","labels":{"a":"b"},"disable_auto_pause":true,"auto_destroy_after_seconds":7200}"#;
    assert_eq!(serde_json::to_string(&forks[1]).unwrap(), expected);
    for wrong in ["0", "101", "many"] {
        assert_eq!(run(&server, &["fork", ID, "--count", wrong]).await.code, Some(2), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_taken_listed_as_a_tree_restored_and_deleted() {
    let server = server().await;
    let taken = run(&server, &["snapshot", "create", ID, "--name", "clean", "--description", "before"]).await;
    assert_eq!(taken.stdout, format!("{SNAPSHOT}\n"));
    assert_eq!(timeless(&taken.stderr), format!("taken: clean ({SNAPSHOT}) of {ID}, 12.0 MiB in TIME\n"));
    let named = run(&server, &["snapshot", "create", ID, "--name", "taken"]).await;
    assert!(named.stderr.contains("another snapshot is called \"taken\"\n\nhint: choose another name"));
    let refused = run(&server, &["snapshot", "create", ID, "--name", "No Name"]).await;
    assert!(refused.stderr.contains("error: name: a snapshot's name has only a-z"), "{}", refused.stderr);

    let listed = run(&server, &["snapshot", "ls"]).await.stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("SNAPSHOT        ID "), "{listed}");
    assert!(lines[0].contains("  OF           AGE"), "{listed}");
    assert!(lines[1].starts_with(&format!("clean           {SNAPSHOT}  quick-otter  ")), "{listed}");
    assert!(lines[2].starts_with("└─ after-tests  sn-01arz3ndektsv4rrffq69g5f01  quick-otter  "), "{listed}");
    assert!(lines[2].ends_with("  12.0 MiB  ready"), "{listed}");
    let ids = run(&server, &["snapshot", "ls", "-q", "--sandbox", "quick-otter"]).await.stdout;
    assert_eq!(ids, format!("sn-01arz3ndektsv4rrffq69g5f01\n{SNAPSHOT}\n"));
    let filter = server.fake.snapshot_filters.lock().unwrap().pop().unwrap();
    assert_eq!(filter.sandbox.unwrap().to_string(), "quick-otter");
    let json = parsed(&run(&server, &["snapshot", "ls", "--json"]).await.stdout);
    assert_eq!(json[0]["parent"], SNAPSHOT);

    assert!(run(&server, &["snapshot", "get", "clean"]).await.stdout.contains("size_bytes               12582912\n"));
    let restored = run(&server, &["snapshot", "restore", "quick-otter", "clean"]).await;
    assert_eq!(timeless(&restored.stderr), format!("running: quick-otter ({ID}) as it was at clean, in TIME\n"));
    let deleted = run(&server, &["snapshot", "rm", "clean", "nothing"]).await;
    assert_eq!(deleted.stderr, "deleted: clean\nerror: there is no snapshot \"nothing\"\n");
    assert_eq!(deleted.code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_begins_as_a_snapshot_with_nothing_else_said() {
    let server = server().await;
    for arguments in [&["create", "--snapshot", "clean"][..], &["run", "--from-snapshot", "clean", "--", "true"]] {
        let ran = run(&server, arguments).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let request = server.fake.created.lock().unwrap().pop().unwrap();
        assert_eq!((request.snapshot.as_deref(), request.shape.as_str(), request.rootfs), (Some("clean"), "", None));
    }
    let both = run(&server, &["create", "--snapshot", "clean", "--image", "debian:13"]).await;
    assert_eq!(both.code, Some(2));
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
    let limits = ["create", "--auto-pause", "10m", "--auto-destroy", "1d", "--lifetime", "2h"];
    assert_eq!(run(&server, &limits).await.code, Some(0));
    let request = server.fake.created.lock().unwrap().pop().unwrap();
    assert_eq!((request.auto_pause_after_seconds, request.auto_destroy_after_seconds), (Some(600), Some(86400)));
    assert_eq!((request.lifetime_seconds, request.rootfs.as_deref()), (Some(7200), Some("debian:13")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_changed_is_changed_and_nothing_else() {
    let server = server().await;
    let changed = run(&server, &["update", ID, "--auto-pause", "off", "--lifetime", "off", "--label", "a=b"]).await;
    assert_eq!((changed.code, changed.stderr), (Some(0), format!("changed: quick-otter ({ID})\n")));
    let nothing = run(&server, &["update", ID]).await;
    assert_eq!(nothing.code, Some(1));
    assert!(nothing.stderr.starts_with("error: there is nothing to change\n\nhint: "), "{}", nothing.stderr);
    let short = run(&server, &["update", ID, "--auto-destroy", "5s"]).await;
    assert!(short.stderr.starts_with("error: auto_destroy_after_seconds: must be 60"), "{}", short.stderr);
    assert_eq!(run(&server, &["update", ID, "--auto-pause", "soon"]).await.code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_a_table_with_its_total() {
    let server = server().await;
    let listed = run(&server, &["usage", "--from", "2023-11-14"]).await.stdout;
    let lines: Vec<&str> = listed.lines().collect();
    let expected = format!("quick-otter  {ID}  running  90 s    60 min  12 s  0.006 GiB h  0.050 GiB h");
    assert_eq!(lines[1], expected, "{listed}");
    assert!(lines[2].starts_with("TOTAL        1 sandboxes"), "{listed}");
    assert_eq!(server.fake.usage_queries.lock().unwrap()[0].period.from.unwrap().to_string(), "2023-11-14T00:00:00Z");
    let json = parsed(&run(&server, &["usage", "--json", "--last", "1h"]).await.stdout);
    assert_eq!(json["total"]["cpu_seconds"], 12.25);
    let one = run(&server, &["usage", "quick-otter"]).await.stdout;
    assert!(one.contains("processor  12 s\n") && one.contains("network    0 B in, 0 B out\n"), "{one}");
    let wrong = run(&server, &["usage", "--from", "yesterday"]).await;
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("is no moment: write a date like 2026-12-01"), "{}", wrong.stderr);
    let backwards = run(&server, &["usage", "--from", "2026-02-01", "--to", "2026-01-01"]).await;
    assert!(backwards.stderr.starts_with("error: to: 2026-01-01T00:00:00Z lies before from"), "{}", backwards.stderr);
}
