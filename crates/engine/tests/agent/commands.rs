//! The table of commands.

use std::collections::BTreeMap;

use hutch_protocol::exec::{Command, Exec, Outcome, StartStep};
use hutch_protocol::files::WriteFile;
use hutch_protocol::{ByteText, Code};

use super::rig::Rig;
use super::table::{Row, check};

#[tokio::test]
async fn programs_and_their_ends() {
    let rig = Rig::new().await;
    let signaled = |signal| Outcome::Signaled { signal, core_dumped: false };
    check(
        &rig,
        &[
            Row::argv("arguments reach the program", &["echo", "hello", "world"]).prints("hello world\n"),
            Row::argv("nothing is interpreted", &["printf", "%s|", "a b", "'\"", "$HOME", "\\n", "*", "", "\n", "é🦀"])
                .prints("a b|'\"|$HOME|\\n|*||\n|é🦀|"),
            Row::argv("a path is no search", &["/bin/sh", "-c", "echo $0"]).prints("/bin/sh\n"),
            Row::shell("status 0", "true").prints("").says(""),
            Row::shell("status 3", "exit 3").exits(3),
            Row::shell("status 255", "exit 255").exits(255),
            Row::shell("status 137 without a signal", "exit 137").exits(137),
            Row::shell("output and error stay apart", "echo out; echo err >&2").prints("out\n").says("err\n"),
            Row::shell("a script kills itself", "kill -9 $$").ends(signaled(9)),
            Row::shell("a script terminates itself", "kill -TERM $$").ends(signaled(15)),
            Row::shell("a program crashes", "ulimit -c 0; kill -SEGV $$").ends(signaled(11)),
            Row::shell("a child's signal is the shell's status", "sh -c 'kill -9 $$'; exit $?").exits(137),
            Row::shell("pipes of the shell", "printf 'b\\na\\n' | sort | tr a-z A-Z").prints("A\nB\n"),
            Row::argv("the last of a pipe is not all", &["bash", "-c", "set -o pipefail; false | true"]).exits(1),
            Row::argv("a pipe is no terminal", &["sh", "-c", "test -t 0 || test -t 1 || echo none"]).prints("none\n"),
            Row::shell("a broken pipe ends quietly", "yes | head -n 1").prints("y\n").says(""),
            Row::argv("signals are at their defaults", &["sed", "-n", "/^Sig[BIC]/p", "/proc/self/status"])
                .prints("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n"),
            Row::shell("nothing of the agent's is open", "ls /proc/self/fd | tr '\\n' ' '").prints("0 1 2 3 "),
            Row::shell("the session is its own", "test $$ = $(cut -d' ' -f6 /proc/$$/stat) && echo own")
                .prints("own\n"),
            Row::shell("files are made for others to read", "umask").prints("0022\n"),
        ],
    )
    .await;
    rig.finish().await;
}

#[tokio::test]
async fn what_cannot_be_started() {
    let rig = Rig::new().await;
    let script = rig.path("script");
    let lost = rig.path("lost");
    for (path, text) in [(&script, "echo \"$0 $1\"\n"), (&lost, "#!/nowhere/interpreter\n")] {
        let write = WriteFile { mode: Some(0o755), ..write(path) };
        let content = futures_util::stream::iter([Ok(text.into())]);
        rig.client.write_file(&write, content).await.unwrap();
    }
    let in_directory = |exec: &mut Exec| exec.cwd = Some(rig.directory.as_str().into());
    check(
        &rig,
        &[
            Row::argv("no such command", &["no-such-command"]).fails(
                StartStep::Program,
                127,
                "no-such-command: command not found",
            ),
            Row::argv("no such file", &["/no/such/file"]).fails(StartStep::Program, 127, "/no/such/file"),
            Row::argv("a part of the path is a file", &["/etc/passwd/x"]).fails(StartStep::Program, 127, "passwd"),
            Row::argv("not executable", &["/etc/passwd"]).fails(StartStep::Program, 126, "Permission denied"),
            Row::argv("a directory", &["/tmp"]).fails(StartStep::Program, 126, "/tmp"),
            Row::argv("an interpreter that is not there", &[&lost]).fails(StartStep::Program, 127, "lost"),
            Row::argv("no interpreter line at all", &[&script, "one"]).prints(format!("{script} one\n")),
            Row::argv("relative to the working directory", &["./script", "two"])
                .with(in_directory)
                .prints("./script two\n"),
            Row::shell("the shell's own 127", "no-such-command 2>/dev/null").exits(127),
            Row::shell("the shell's own 126", "/etc/passwd 2>/dev/null").exits(126),
            Row::shell("no working directory", "true").with(|exec| exec.cwd = Some("/no/such".into())).fails(
                StartStep::WorkingDirectory,
                126,
                "cwd /no/such: No such file",
            ),
            Row::shell("a file as working directory", "true").with(|exec| exec.cwd = Some("/etc/passwd".into())).fails(
                StartStep::WorkingDirectory,
                126,
                "Not a directory",
            ),
            Row::shell("no such user", "true").with(|exec| exec.user = Some("no-such-user".into())).fails(
                StartStep::User,
                126,
                "no-such-user",
            ),
            Row::shell("no such group", "true").with(|exec| exec.user = Some("root:no-such-group".into())).fails(
                StartStep::User,
                126,
                "no-such-group",
            ),
            Row::exec("no program", Exec::new(Command::Argv(vec![]))).refused(Code::InvalidRequest, "argv is empty"),
            Row::argv("an empty program", &[""]).refused(Code::InvalidRequest, "argv[0]"),
            Row::argv("a NUL in an argument", &["echo", "a\0b"]).refused(Code::InvalidRequest, "argv[1]"),
            Row::shell("a relative working directory", "true")
                .with(|exec| exec.cwd = Some("tmp".into()))
                .refused(Code::InvalidRequest, "cwd"),
            Row::shell("a variable with an equals sign", "true")
                .with(|exec| drop(exec.env.insert("A=B".into(), "c".into())))
                .refused(Code::InvalidRequest, "A=B"),
        ],
    )
    .await;
    rig.finish().await;
}

#[tokio::test]
async fn who_and_where() {
    let rig = Rig::new().await;
    let user = |name: &'static str| move |exec: &mut Exec| exec.user = Some(name.into());
    let variables = |exec: &mut Exec| {
        exec.env = BTreeMap::from([
            ("LINES_IN".to_owned(), "a\nb".into()),
            ("RAW".to_owned(), ByteText::from(vec![0xff, b'=', 0xfe])),
            ("FROM_SANDBOX".to_owned(), "command".into()),
            ("dotted.name".to_owned(), "1".into()),
        ]);
    };
    check(
        &rig,
        &[
            Row::shell("one begins at home", "test \"$PWD\" = \"$HOME\" && pwd").prints("/root\n"),
            Row::shell("a home that is not there", "pwd").with(|exec| exec.user = Some("4242".into())).prints("/\n"),
            Row::shell("a working directory", "pwd").with(|exec| exec.cwd = Some("/usr".into())).prints("/usr\n"),
            Row::shell("root without being named", "id -u; id -g; echo $USER $HOME").prints("0\n0\nroot /root\n"),
            Row::shell("a user by name", "id -un; id -u").with(user("nobody")).prints("nobody\n65534\n"),
            Row::shell("a user by number", "id -u; id -g; echo $USER $HOME")
                .with(user("1234"))
                .prints("1234\n1234\n1234 /\n"),
            Row::shell("a user and a group by number", "id -u; id -g; id -G")
                .with(user("1234:2345"))
                .prints("1234\n2345\n2345\n"),
            Row::shell("a user and a group by name", "id -un; id -gn")
                .with(user("nobody:daemon"))
                .prints("nobody\ndaemon\n"),
            Row::shell("another user cannot do as root", "cat /etc/shadow 2>/dev/null || echo no")
                .with(user("nobody"))
                .prints("no\n"),
            Row::shell("defaults of the environment", "echo $LANG $TERM $FROM_SANDBOX; echo $PATH")
                .prints("C.UTF-8 dumb sandbox\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"),
            Row::shell("the command's own environment", "printf '%s|' \"$LINES_IN\" \"$RAW\" \"$FROM_SANDBOX\"")
                .with(variables)
                .prints(b"a\nb|\xff=\xfe|command|".to_vec()),
            Row::argv("a variable that no shell could set", &["env"])
                .with(|exec| {
                    exec.env = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "FROM_SANDBOX"]
                        .map(|name| (name.to_owned(), "x".into()))
                        .into();
                    exec.env.insert("PATH".into(), "/usr/bin:/bin".into());
                    exec.env.insert("a.b-c".into(), "1".into());
                })
                .prints(
                    "FROM_SANDBOX=x\nHOME=x\nLANG=x\nLOGNAME=x\nPATH=/usr/bin:/bin\nSHELL=x\nTERM=x\nUSER=x\na.b-c=1\n",
                ),
            Row::shell("the search is in the command's own path", "true")
                .with(|exec| {
                    exec.command = Command::Argv(vec!["sh".into(), "-c".into(), "echo found".into()]);
                    exec.env.insert("PATH".into(), "/nowhere:/bin".into());
                })
                .prints("found\n"),
            Row::argv("an empty path finds nothing", &["sh", "-c", "true"])
                .with(|exec| drop(exec.env.insert("PATH".into(), "/nowhere".into())))
                .fails(StartStep::Program, 127, "sh"),
        ],
    )
    .await;
    rig.finish().await;
}

#[tokio::test]
async fn input_and_output_are_bytes() {
    let rig = Rig::new().await;
    let all: Vec<u8> = (0..=255).cycle().take(600_000).collect();
    let crab = "🦀é漢\u{1f469}\u{200d}\u{1f4bb}";
    let one_at_a_time = format!("printf %s '{crab}' | while IFS= read -r -n1 -d '' c; do printf %s \"$c\"; done");
    check(
        &rig,
        &[
            Row::argv("every byte through standard input", &["cat"]).stdin(all.clone()).prints(all.clone()),
            Row::argv("an end without any input", &["cat"]).stdin("").prints(""),
            Row::argv("no input is an end at once", &["cat"]).prints(""),
            Row::shell("read without input fails", "read line; echo $?").prints("1\n"),
            Row::shell("read with input", "read line; echo \"<$line>\"; cat")
                .stdin("one\ntwo\n")
                .prints("<one>\ntwo\n"),
            Row::argv("input without a last newline", &["sh", "-c", "wc -c"]).stdin("abc").prints("3\n"),
            Row::argv("more input than is read", &["head", "-c", "5"]).stdin(all.clone()).prints(all[..5].to_vec()),
            Row::shell("input that nobody reads", "exec <&-; echo ok").stdin(all.clone()).prints("ok\n"),
            Row::shell("NUL bytes", "printf 'a\\0b\\0'").prints(b"a\0b\0".to_vec()),
            Row::argv("NUL bytes of an environment", &["cat", "/proc/self/environ"]).greps("HOME=/root\0"),
            Row::shell("bytes that are no UTF-8", "printf '\\377\\376\\300\\200'").prints(b"\xff\xfe\xc0\x80".to_vec()),
            Row::exec("an argument that is no UTF-8", Exec::argv([&b"printf"[..], b"%s", b"\xff\xc3\x28"]))
                .prints(b"\xff\xc3\x28".to_vec()),
            Row::argv("characters in single bytes", &["bash", "-c", &one_at_a_time])
                .with(|exec| drop(exec.env.insert("LC_ALL".into(), "C".into())))
                .prints(crab),
            Row::shell("a heredoc", "cat <<EOF\none $((1 + 1))\nEOF").prints("one 2\n"),
            Row::shell("a quoted heredoc", "cat <<'EOF'\n$HOME `date` \\ \"\nEOF").prints("$HOME `date` \\ \"\n"),
            Row::shell("a heredoc in a heredoc", "sh <<'A'\ncat <<'B'\nx\nB\nA").prints("x\n"),
            Row::shell("two heredocs", "cat <<A - <<B\na\nA\nb\nB").prints("b\n"),
            Row::shell("a heredoc longer than a pipe", format!("cat <<'EOF' | wc -c\n{}\nEOF", "x".repeat(200_000)))
                .prints("200001\n"),
            Row::argv("a here string", &["bash", "-c", "cat <<<'a  b'"]).prints("a  b\n"),
            Row::argv("process substitution", &["bash", "-c", "cat <(echo one) <(echo two)"]).prints("one\ntwo\n"),
            Row::shell("standard streams by name", "echo a >/dev/stdout; echo b >/dev/stderr; cat /dev/stdin")
                .stdin("c")
                .prints("a\nc")
                .says("b\n"),
            Row::shell("output that is closed before the end", "exec >&- 2>&-; sleep 0.1; exit 5").exits(5),
            Row::shell("too much output", "yes | head -c 100000")
                .with(|exec| exec.max_output_bytes = Some(10))
                .prints("y\ny\ny\ny\ny\n")
                .truncated(true, false),
            Row::shell("too much on standard error", "echo ok; yes | head -c 300000 >&2")
                .with(|exec| exec.max_output_bytes = Some(4))
                .prints("ok\n")
                .says("y\ny\n")
                .truncated(false, true),
            Row::shell("as much output as is allowed", "printf 0123456789")
                .with(|exec| exec.max_output_bytes = Some(10))
                .prints("0123456789"),
            Row::shell("no output is wanted", "yes | head -c 3000000; echo end >&2")
                .with(|exec| exec.max_output_bytes = Some(0))
                .prints("")
                .says("")
                .truncated(true, true),
        ],
    )
    .await;
    rig.finish().await;
}

#[tokio::test]
async fn long_commands() {
    let rig = Rig::new().await;
    let comment = "#".repeat(2_000_000);
    let script = format!("echo before\n{comment}\necho \"after $0 $1\"; exit 7");
    let many: Vec<String> = std::iter::once("sh".to_owned())
        .chain(["-c".to_owned(), "echo $# ${#1}".to_owned(), "zero".to_owned()])
        .chain(std::iter::repeat_n("y".repeat(100_000), 18))
        .collect();
    let too_long = "x".repeat(200_000);
    let escaped = format!("echo ok\n#{}", "\u{1}".repeat(1_000_000));
    check(
        &rig,
        &[
            Row::shell("two megabytes of script", script.clone()).prints("before\nafter /bin/sh \n").exits(7),
            Row::argv("with arguments", &["bash", "-c", &script, "zero", "one"])
                .prints("before\nafter zero one\n")
                .exits(7),
            Row::shell("that reads its input", format!("cat; true {comment}")).stdin("in").prints("in"),
            Row::shell("of bytes that JSON writes long", escaped).prints("ok\n"),
            Row::exec("two megabytes of arguments", Exec::argv(many)).prints("18 100000\n"),
            Row::argv("an argument that the kernel refuses", &["echo", &too_long]).fails(
                StartStep::Program,
                126,
                "Argument list too long",
            ),
        ],
    )
    .await;
    let error = rig.run(Exec::shell("x".repeat(9 << 20))).await.unwrap_err();
    assert!(matches!(error, hutch_engine::agent::ClientError::RequestTooLarge { .. }), "{error:?}");
    rig.finish().await;
}

#[tokio::test]
async fn background_children() {
    let rig = Rig::new().await;
    check(
        &rig,
        &[
            Row::shell("a background child", "sleep 61 & echo started").prints("started\n").held(),
            Row::shell("that took no output", "sleep 61 >/dev/null 2>&1 & echo started").prints("started\n"),
            Row::shell("with nohup", "nohup sleep 61 2>/dev/null & echo started").prints("started\n").held(),
            Row::shell("in a session of its own", "(setsid sleep 61 &); echo started").prints("started\n").held(),
            Row::shell("that forked twice", "( (sleep 61 &) & ); echo started").prints("started\n").held(),
            Row::shell("a silent holder of another descriptor", "exec 9>&1 >/dev/null; sleep 61 9>&9 & exit 4")
                .exits(4)
                .held(),
            Row::shell("late output is waited for", "(sleep 0.2; echo late) & echo now")
                .with(|exec| exec.grace_ms = None)
                .prints("now\nlate\n"),
            Row::shell("or not", "(sleep 61; echo late) & echo now")
                .with(|exec| exec.grace_ms = Some(0))
                .prints("now\n")
                .held(),
            Row::shell("the shell waits by itself", "(sleep 0.2; echo late) & wait; echo now").prints("late\nnow\n"),
            Row::shell("a background child reads no input", "cat & wait; echo end").prints("end\n"),
        ],
    )
    .await;
    // They live on, and go when they are told to.
    rig.until(&counting("sleep 6[1]"), "7").await;
    rig.shell(&format!("kill $({})", listing("sleep 6[1]"))).await;
    rig.until(&counting("sleep 6[1]"), "0").await;
    rig.finish().await;
}

#[tokio::test]
async fn timeouts() {
    let rig = Rig::new().await;
    let timeout = |exec: &mut Exec| exec.timeout_ms = Some(300);
    let polite = |exec: &mut Exec| (exec.timeout_ms, exec.kill_grace_ms) = (Some(300), 30_000);
    let impolite = |exec: &mut Exec| (exec.timeout_ms, exec.kill_grace_ms) = (Some(200), 200);
    check(
        &rig,
        &[
            Row::shell("what was printed is kept", "printf x; sleep 62")
                .with(timeout)
                .prints("x")
                .ends(Outcome::TimedOut {}),
            Row::shell("a command that is fast enough", "echo ok").with(timeout).prints("ok\n"),
            Row::shell(
                "children die too",
                "sleep 62 & setsid sleep 62 & (setsid sh -c 'sleep 62 & sleep 62' &); printf x; wait",
            )
            .with(timeout)
            .prints("x")
            .ends(Outcome::TimedOut {}),
            Row::shell("waiting for background children counts", "sleep 62 & printf x")
                .with(|exec| (exec.timeout_ms, exec.grace_ms) = (Some(300), None))
                .prints("x")
                .ends(Outcome::TimedOut {}),
            Row::shell("endless output", "yes >/dev/null").with(timeout).ends(Outcome::TimedOut {}),
            Row::shell("a chance to end well", "trap 'echo bye; exit 0' TERM; sleep 62 & wait")
                .with(polite)
                .prints("bye\n")
                .ends(Outcome::TimedOut {}),
            Row::shell("a chance not taken", "trap '' TERM; printf x; while :; do sleep 62; done")
                .with(impolite)
                .prints("x")
                .ends(Outcome::TimedOut {}),
            Row::argv("input does not keep it", &["cat"]).stdin("x").prints("x"),
        ],
    )
    .await;
    assert_eq!(rig.shell(&counting("sleep 6[2]")).await.trim(), "0", "the answer comes when the tree is dead");
    rig.finish().await;
}

/// A script that counts processes by their command line.
pub(crate) fn counting(pattern: &str) -> String {
    format!("{{ {}; }} | wc -l", listing(pattern))
}

/// A script that lists the process ids of those with this command line.
pub(crate) fn listing(pattern: &str) -> String {
    format!(
        "for file in /proc/[0-9]*/cmdline; do \
           if tr '\\0' ' ' <$file 2>/dev/null | grep -q '^{pattern} $'; then \
             pid=${{file#/proc/}}; echo ${{pid%/cmdline}}; fi; done 2>/dev/null"
    )
}

fn write(path: &str) -> WriteFile {
    WriteFile { path: path.into(), mode: None, user: None, size: None, max_bytes: None, sync: false }
}
