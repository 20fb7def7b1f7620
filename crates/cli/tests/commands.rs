//! The program, run as a user runs it, against the contract in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod program;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use program::fake::{ID, Server};
use program::{program, run, run_command, server};
use rustix::process::{Pid, Signal, kill_process};

/// Waits for a program that must end by itself.
async fn end(mut child: Child) -> ExitStatus {
    let waited = tokio::task::spawn_blocking(move || child.wait().unwrap());
    tokio::time::timeout(Duration::from_secs(30), waited).await.expect("the program does not end").unwrap()
}

fn destroyed(server: &Server) -> usize {
    server.fake.destroyed.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_passes_on_output_and_exit_code_and_destroys_the_sandbox() {
    let server = server().await;
    let ran = run(&server, &["run", "--env", "A=b=c", "--", "both", "--flag"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "out\n"), "{}", ran.stderr);
    let expected = format!(
        "created: quick-otter ({ID}) in 412 ms, debian:13, s-1vcpu-256mb, isolation user-kernel, \
        no network but its own loopback\nerr\nran: "
    );
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
    assert!(ran.stderr.ends_with(", exit code 3, sandbox destroyed\n"), "{}", ran.stderr);
    assert_eq!(destroyed(&server), 1);
    let request = server.fake.created.lock().unwrap()[0].clone();
    assert_eq!(request.envs["A"], "b=c");
    assert!(request.idempotency_key.is_some() && request.lifetime_seconds.is_some());

    let quiet = run(&server, &["run", "-q", "--", "both"]).await;
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("out\n", "err\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_says_how_it_ended_when_a_number_does_not() {
    let server = server().await;
    for (command, code, words) in [
        ("nope", 127, "error: the command could not be started: nope: no such program"),
        ("timeout", 124, "error: the command was ended: its time of 1.0 s was over (--timeout)"),
        ("lost", 125, "error: the kernel died"),
        ("cut", 125, "error: the sandbox stopped answering before the command ended"),
    ] {
        let ran = run(&server, &["run", "--timeout", "1s", "--", command]).await;
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    assert_eq!(destroyed(&server), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_as_json_has_output_times_and_sandbox() {
    let server = server().await;
    let ran = run(&server, &["run", "--json", "--keep", "--", "both"]).await;
    assert_eq!(ran.code, Some(3));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (report["result"]["stdout"].as_str(), report["result"]["stderr"].as_str()),
        (Some("out\n"), Some("err\n"))
    );
    assert_eq!((report["sandbox"]["id"].as_str(), report["kept"].as_bool()), (Some(ID), Some(true)));
    assert!(ran.stderr.contains("kept: quick-otter"), "{}", ran.stderr);
    assert_eq!(destroyed(&server), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn input_goes_in_exactly_however_large() {
    let server = server().await;
    let with_input = async |arguments: &[&str], input: Vec<u8>| {
        let mut command = program(&server, arguments);
        command.stdin(Stdio::piped());
        tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            let mut pipe = child.stdin.take().unwrap();
            let writer = std::thread::spawn(move || pipe.write_all(&input));
            let output = child.wait_with_output().unwrap();
            // Who wants no input may end before it is written.
            match writer.join().unwrap() {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written.unwrap(),
            }
            output.stdout
        })
        .await
        .unwrap()
    };
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(with_input(&["run", "--", "cat"], bytes.clone()).await, bytes);
    assert_eq!(with_input(&["exec", ID, "--", "cat"], bytes.clone()).await, bytes);
    assert!(with_input(&["exec", "--no-stdin", ID, "--", "cat"], bytes).await.is_empty());
    // More than travels with a command lies in a file of the sandbox first.
    with_input(&["exec", ID, "--", "cat"], vec![7; 6 << 20]).await;
    let files = server.fake.files.lock().unwrap();
    assert_eq!(files.values().next().unwrap().len(), 6 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_brought_in_with_what_it_needs_and_its_result_out() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("job.py");
    let result = folder.path().join("deep/result");
    std::fs::write(&script, "print()").unwrap();
    let push = format!("{}:/root/in", script.display());
    let pull = format!("/root/in:{}", result.display());
    let ran = run(&server, &["run", "--file", script.to_str().unwrap(), "--push", &push, "--pull", &pull]).await;
    // The fake knows no python3; the file comes out all the same.
    assert_eq!(ran.code, Some(127), "{}", ran.stderr);
    assert_eq!(server.fake.files.lock().unwrap()["/root/job.py"].as_ref(), b"print()");
    assert_eq!(std::fs::read(&result).unwrap(), b"print()");

    let missing = run(&server, &["run", "--file", "/no/such/script.py"]).await;
    assert_eq!(missing.code, Some(125));
    let expected = "error: /no/such/script.py cannot be read\n  cause: No such file or directory (os error 2)\n";
    assert_eq!(missing.stderr, expected);
    assert_eq!(server.fake.created.lock().unwrap().len(), 1, "nothing is created for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_kills_the_command_and_destroys_the_sandbox() {
    let server = server().await;
    for (number, (signal, code)) in
        [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)].into_iter().enumerate()
    {
        let mut child = program(&server, &["run", "--", "forever"]).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line
        });
        assert_eq!(line.await.unwrap(), "begun\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end(child).await.code(), Some(code));
        server.until_killed(number + 1).await;
        assert_eq!(destroyed(&server), number + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_while_the_sandbox_is_created_destroys_it_too() {
    let server = server().await;
    *server.fake.slow_create.lock().unwrap() = Duration::from_secs(3600);
    let child = program(&server, &["run", "--", "true"]).spawn().unwrap();
    let began = Instant::now();
    while server.fake.created.lock().unwrap().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing is created");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end(child).await.code(), Some(130));
    assert_eq!(destroyed(&server), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_is_no_error_and_ends_the_command() {
    let server = server().await;
    let mut child = program(&server, &["run", "--", "flood"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    tokio::task::spawn_blocking(move || stdout.read_exact(&mut [0; 10]).unwrap()).await.unwrap();
    assert_eq!(end(child).await.code(), Some(0));
    assert_eq!(destroyed(&server), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn push_and_pull() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("a"), vec![9; 3_000_001]).unwrap();
    assert_eq!(run(&server, &["push", ID, &path("a"), "/root/"]).await.code, Some(0));
    assert_eq!(run(&server, &["pull", ID, "/root/a", &path("b")]).await.code, Some(0));
    assert_eq!(std::fs::read(path("b")).unwrap(), vec![9; 3_000_001]);
    let json = run(&server, &["pull", ID, "/root/a", &path("b"), "--json"]).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap()["bytes"], 3_000_001);

    // A download that breaks off leaves the old file and nothing beside it.
    server.fake.files.lock().unwrap().insert("/shrinks".into(), vec![1; 1000].into());
    let broken = run(&server, &["pull", ID, "/shrinks", &path("b")]).await;
    assert_eq!(broken.code, Some(1), "{}", broken.stderr);
    assert_eq!(std::fs::metadata(path("b")).unwrap().len(), 3_000_001);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);

    let missing = run(&server, &["pull", ID, "/none", "-"]).await;
    assert_eq!((missing.code, missing.stderr.as_str()), (Some(1), "error: there is no file \"/none\"\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_in_tables_lines_and_json() {
    let server = server().await;
    let table = run(&server, &["ls", "--label", "hutch.run=x"]).await;
    assert_eq!((table.stdout.as_str(), table.stderr.as_str()), ("", "no sandboxes; `hutch create` makes one\n"));
    assert_eq!(run(&server, &["create", "-q"]).await.stdout, format!("{ID}\n"));
    let table = run(&server, &["ls", "--label", "hutch.run=x"]).await.stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME         ID   "), "{table}");
    assert!(lines[1].starts_with(&format!("quick-otter  {ID}  running  ")), "{table}");
    assert!(lines[1].ends_with(" days  debian:13  s-1vcpu-256mb"), "{table}");
    let ids = run(&server, &["ls", "-q", "--label", "hutch.run=x"]).await.stdout;
    assert_eq!(ids, format!("{ID}\n"));
    let json: serde_json::Value =
        serde_json::from_str(&run(&server, &["get", "quick-otter", "--json"]).await.stdout).unwrap();
    assert_eq!(json["id"], ID);
    assert!(run(&server, &["get", ID]).await.stdout.contains("labels                   job=7\n"));
    assert_eq!(run(&server, &["rm", "quick-otter"]).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_built_is_waited_for() {
    let server = server().await;
    let ran = run(&server, &["create", "--image", "building:1"]).await;
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("{ID}\n")));
    let expected = "the image building:1 is built first; this happens once\n  unpacking packages\ncreated: ";
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);

    let broken = run(&server, &["images", "build", "broken:1"]).await;
    assert_eq!(broken.code, Some(1));
    assert!(
        broken.stderr.contains("error: the image broken:1 could not be built: no space left\n\nhint: "),
        "{}",
        broken.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_and_doctor_have_a_verdict() {
    let server = server().await;
    let audit = run(&server, &["audit"]).await;
    assert_eq!(audit.code, Some(1));
    assert!(audit.stdout.ends_with("\n1 without an owner:\n  cgroup hutch/b\n"), "{}", audit.stdout);
    let doctor = run(&server, &["doctor"]).await;
    assert_eq!(doctor.code, Some(0));
    assert_eq!(doctor.stdout, "warning  network  loopback only\n\nSandboxes can run on this machine.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_with_what_to_do() {
    let server = server().await;
    let mut nobody = program(&server, &["ls"]);
    nobody.env_remove("HUTCH_URL").env("HUTCH_URL", "http://127.0.0.1:1");
    let ran = run_command(nobody).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let expected = "error: no connection to 127.0.0.1:1\n  cause: Connection refused (os error 111)\n\n\
        hint: is the service running? `hutch serve` starts one; HUTCH_URL names the one to use\n";
    assert_eq!(ran.stderr, expected);

    let mut wrong = program(&server, &["ls"]);
    wrong.env("HUTCH_API_KEY", "skp_wrong");
    let expected =
        "error: this API key is not known\n\nhint: the key came from HUTCH_API_KEY; `hutch keys create` makes one\n";
    assert_eq!(run_command(wrong).await.stderr, expected);
    let mut none = program(&server, &["ls"]);
    none.env_remove("HUTCH_API_KEY");
    let stderr = run_command(none).await.stderr;
    assert!(stderr.contains("HUTCH_API_KEY is not set and /nonexistent/api-key cannot be read"), "{stderr}");

    let taken = run(&server, &["create", "--name", "quick-otter"]).await;
    assert!(taken.stderr.contains("hint: choose another name"), "{}", taken.stderr);
    let internal = run(&server, &["create", "--name", "unlucky"]).await;
    assert!(internal.stderr.contains("the service's log has more about the request req_"), "{}", internal.stderr);
    for arguments in
        [&["run"][..], &["run", "--env", "NOVALUE", "--", "x"], &["create", "--lifetime", "soon"], &["nonsense"]]
    {
        let ran = run(&server, arguments).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_know_the_commands() {
    let server = server().await;
    for shell in ["bash", "zsh", "fish"] {
        let text = run(&server, &["completions", shell]).await.stdout;
        assert!(text.contains("images") && !text.contains('\u{1b}'), "{shell}");
    }
}
