//! The jail on a kernel with cgroup version 2, whatever the host has: the jail's own tests, run in a sandbox.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build;
use crate::conformance::lab::{Lab, PATIENCE, shell, upload};
use hutch_protocol::exec::Outcome;

/// The program of the jail's tests, by cargo's own word.
fn jail_tests() -> PathBuf {
    let (target, release) = build::target();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run", "--quiet", "--package", "hutch-jail", "--test", "jail"]);
    cargo.args(["--message-format", "json", "--target-dir"]).arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    if release {
        cargo.arg("--release");
    }
    let output = cargo.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut tests = messages
        .filter(|message| message["target"]["name"] == "jail")
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    tests.next_back().expect("cargo names the program that it built")
}

/// The program that wants out, for a guest that has no compiler.
fn probe(directory: &Path) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../jail/tests/probe/probe.c");
    let program = directory.join("probe");
    let output = Command::new("gcc").args(["-static", "-O1", "-o"]).arg(&program).arg(source).output();
    let output = output.map_err(|error| format!("no C compiler: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(program) } else { Err(format!("the probe does not compile: {said}")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jail_holds_on_cgroup_version_2() {
    let directory = tempfile::tempdir().unwrap();
    let opened = Lab::open(build::make).await.and_then(|lab| Ok((lab, probe(directory.path())?)));
    let (lab, probe) = match opened {
        Ok(opened) => opened,
        Err(reason) => return crate::skip(&reason),
    };
    let (launcher, tests) = (build::launcher(), jail_tests());
    let mut spec = lab.spec();
    spec.memory = hutch_units::Mebibytes(1024);
    let machine = lab.start(&spec).await;
    upload(&machine.agent, &probe, "/root/probe").await;
    upload(&machine.agent, &tests, "/root/jail-tests").await;
    // The tests know their launcher by the path that it was built at.
    upload(&machine.agent, &launcher, launcher.to_str().unwrap()).await;
    let run = shell(&machine.agent, "HUTCH_PROBE=/root/probe /root/jail-tests --nocapture 2>&1");
    let ran = tokio::time::timeout(PATIENCE, run).await.expect("the tests end");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.ended.outcome, Outcome::Exited { code: 0 }, "{said}");
    assert!(!said.contains("skipped:"), "{said}");
    assert!(said.contains("every_attempt_to_break_out_fails ... ok") || said.contains("test result: ok"), "{said}");
    let left = shell(&machine.agent, "cat /proc/self/cgroup; find /sys/fs/cgroup -name 'hutch*'").await;
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(left.starts_with("0::/"), "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
    lab.destroy(&spec, machine).await;
}
