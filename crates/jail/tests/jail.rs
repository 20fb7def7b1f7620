//! The jail against a program that wants out. Needs root, cgroups and a C compiler.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use hutch_jail::report::{Outcome, Step};
use rustix::process::Signal;
use support::{Jail, LIMITS, launch, launch_unheard, specification};

#[test]
fn every_attempt_to_break_out_fails() {
    skip_if_unfit!();
    let sibling = Jail::start(&["wait"]);
    let (host, other) = (std::process::id().to_string(), sibling.started.pid.to_string());
    let mut jail = Jail::start(&["attempts", &host, &other]);
    let status = jail.wait();
    let output = jail.output();
    assert!(output.ends_with("end\n") && status.exit_status() == Some(0), "{output}");
    let done: Vec<_> = output.lines().filter(|line| line.ends_with(": DONE")).collect();
    // The only signal that is let through reaches a pid namespace with nobody else in it.
    assert_eq!(done, [""; 0], "{output}");
    let refused = output.lines().filter(|line| line.contains(": refused: ")).count();
    assert!(refused > 100, "{refused} attempts: {output}");
    let has = |prefix: &str| output.lines().filter(|line| line.starts_with(prefix)).collect::<Vec<_>>().join(",");
    let expected = "descriptor 0,descriptor 1,descriptor 2,descriptor 3,descriptor 4,descriptor 5,descriptor 6";
    assert_eq!(has("descriptor "), expected);
    assert_eq!(has("variable "), "variable TERM=linux");
    assert_eq!(fs::read(jail.directory.path().join("image")).unwrap(), [b'i'; 8192]);
    assert!(sibling.proc("status").contains("State:\tS"), "the sibling lives");
}

#[test]
fn the_filter_is_not_the_only_wall() {
    skip_if_unfit!();
    let mut jail = Jail::start(&["wait"]);
    jail.wait_for("waiting");
    let status = jail.proc("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".to_owned(), "2".to_owned()));
    assert_eq!(field("Groups:"), "");
    let uid = field("Uid:").split(' ').next().unwrap().to_owned();
    assert!(uid.parse::<u32>().unwrap() >= 0x5000_0000, "{uid}");
    assert_eq!(field("Uid:"), [uid.as_str(); 4].join(" "));
    assert_eq!(field("Gid:"), [uid.as_str(); 4].join(" "));
    assert_eq!(field("NSpid:").split(' ').nth(1), Some("1"), "first of its pid namespace");
    let map = |file: &str| jail.proc(file).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((map("uid_map"), map("gid_map")), (format!("{uid} {uid} 1"), format!("{uid} {uid} 1")));
    assert_eq!(map("setgroups"), "deny");
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let link = |who: &str| fs::read_link(format!("/proc/{who}/ns/{kind}")).unwrap();
        assert_ne!(link(&jail.started.pid.to_string()), link("self"), "{kind}");
    }
    let mounts = jail.proc("mountinfo");
    assert_eq!(mounts.lines().count(), 1, "{mounts}");
    assert!(mounts.contains(" / / ro,nosuid,nodev,noexec") && mounts.contains(" - tmpfs "), "{mounts}");
    assert_eq!(fs::read_dir(format!("/proc/{}/root", jail.started.pid)).unwrap().count(), 0);
    let interfaces = jail.proc("net/dev");
    assert_eq!(interfaces.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:")).count(), 0);
    assert_eq!(jail.proc("oom_score_adj").trim(), "800");
    assert_eq!(jail.proc("personality").trim(), "00040000");
    assert_eq!(jail.proc("environ"), "TERM=linux\0");
}

#[test]
fn the_limits_hold_from_the_first_instruction() {
    skip_if_unfit!();
    let mut jail = Jail::start(&["wait"]);
    jail.wait_for("waiting");
    let limits = jail.proc("limits");
    let has = |name: &str, value: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.split_whitespace().any(|word| word == value), "{line}");
    };
    has("Max core file size", "0");
    has("Max open files", "256");
    has("Max file size", &LIMITS.file_size.0.to_string());
    assert_eq!(jail.group.processes().unwrap(), [jail.started.pid]);
    for directory in &jail.group.directories {
        let processes = fs::read_to_string(directory.path.join("cgroup.procs")).unwrap();
        assert_eq!(processes.trim(), jail.started.pid.to_string(), "{}", directory.path.display());
    }
}

#[test]
fn a_fork_bomb_meets_the_limit_of_processes() {
    skip_if_unfit!();
    let mut jail = Jail::start(&["forks"]);
    let output = jail.wait_for("waiting");
    let forked: u32 = output.lines().find_map(|line| line.strip_prefix("forked ")?.parse().ok()).unwrap();
    assert_eq!(forked, LIMITS.processes - 1);
    assert_eq!(jail.group.processes().unwrap().len(), LIMITS.processes as usize);
}

#[test]
fn killing_the_first_process_ends_all() {
    skip_if_unfit!();
    let mut jail = Jail::start(&["forks"]);
    jail.wait_for("waiting");
    let group = jail.group.clone();
    drop(jail);
    assert_eq!(group.processes().unwrap(), [0; 0]);
    assert!(group.directories.iter().all(|directory| !directory.path.exists()));
}

#[test]
fn a_memory_hog_is_killed_and_told_from_other_ends() {
    skip_if_unfit!();
    let jail = Jail::start(&["memory"]);
    let status = jail.wait();
    assert_eq!(status.terminating_signal(), Some(Signal::KILL.as_raw()), "{status:?}");
    assert!(jail.group.memory_kills() > 0);
}

#[test]
fn the_socket_is_private_and_its_path_must_be_free() {
    skip_if_unfit!();
    let jail = Jail::start(&["wait"]);
    let socket = jail.directory.path().join("agent.sock");
    let metadata = fs::symlink_metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o600, 0));
    std::os::unix::net::UnixStream::connect(&socket).unwrap();

    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("agent.sock"), "precious").unwrap();
    expect_failure(directory, Step::Descriptor, "agent.sock", |_| {});
}

#[test]
fn a_launch_that_nobody_hears_of_is_undone() {
    skip_if_unfit!();
    let directory = tempfile::tempdir().unwrap();
    let specification = specification(directory.path(), &["wait"]);
    launch_unheard(&specification);
    assert!(!directory.path().join("agent.sock").exists());
    for made in &specification.group.directories {
        assert!(!made.path.exists(), "{}", made.path.display());
    }
}

#[test]
fn a_path_longer_than_a_socket_address_will_do() {
    skip_if_unfit!();
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    let jail = Jail::start_in(&deep, directory, &["wait"]);
    assert!(fs::symlink_metadata(deep.join("agent.sock")).unwrap().file_type().is_socket());
    drop(jail);
}

/// A launch that must fail at this step, naming this, and leave nothing.
fn expect_failure(
    directory: tempfile::TempDir,
    step: Step,
    subject: &str,
    change: impl FnOnce(&mut hutch_jail::specification::Specification),
) {
    let mut specification = specification(directory.path(), &["wait"]);
    change(&mut specification);
    let report = launch(&specification, &tempfile::tempfile().unwrap());
    let Outcome::Failed(failure) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(failure.step, step, "{failure}");
    assert!(failure.to_string().contains(subject), "{failure}");
    for made in &specification.group.directories {
        assert!(!made.path.exists(), "{}", made.path.display());
    }
    let socket = directory.path().join("agent.sock");
    assert!(!socket.exists() || fs::symlink_metadata(socket).unwrap().is_file());
}

#[test]
fn a_launch_that_fails_says_where_and_leaves_nothing() {
    skip_if_unfit!();
    let directory = || tempfile::tempdir().unwrap();
    expect_failure(directory(), Step::Descriptor, "/nowhere", |specification| {
        specification.program = "/nowhere/linux".into();
    });
    expect_failure(directory(), Step::Descriptor, "not a regular file", |specification| {
        specification.descriptors[0].source = hutch_jail::specification::Source::ReadOnly { path: "/dev/zero".into() };
    });
    expect_failure(directory(), Step::Cgroup, "/nowhere", |specification| {
        for made in &mut specification.group.directories {
            made.anchor = "/nowhere".into();
            made.path = "/nowhere/cgroup".into();
        }
    });
    expect_failure(directory(), Step::Root, "empty root", |specification| {
        specification.mount_point = "/nowhere/here".into();
    });
    // A text is executable by mode but no program: the last step, when all else was made.
    let text = directory();
    let script = text.path().join("script");
    fs::write(&script, "no program").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    expect_failure(text, Step::Execute, "cargo xtask guest", |specification| specification.program = script);
    expect_failure(directory(), Step::Specification, "uid", |specification| specification.uid = 0);
}
