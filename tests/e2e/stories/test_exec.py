"""Commands: rows 10 to 16 of what other systems got wrong, each as a table or a story."""

import base64
import itertools
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.wait import until
from harness.wire import Sandbox

from conftest import IMAGE, SHAPE


@pytest.fixture(scope="module")
def sandbox(account):
    """A sandbox with variables that the stories may set: only what was declared at create can be."""
    request = {"shape": SHAPE, "rootfs": IMAGE, "envs": {"A": "", "X": "", "LC_ALL": ""}}
    sandbox = Sandbox(account, account.post("/v1/sandboxes", request).data)
    yield sandbox
    sandbox.destroy()


#: Row 15: what a shell is asked to do, and what must come of it. (script, stdout, exit code, further fields)
SNIPPETS = {
    "prints": ("echo hello", "hello\n", 0, {}),
    "fails": ("exit 7", "", 7, {}),
    "fails with the largest code": ("exit 255", "", 255, {}),
    "false": ("false", "", 1, {}),
    "unknown command": ("no-such-command-anywhere 2>/dev/null", "", 127, {}),
    "not executable": ("touch /tmp/plain; /tmp/plain 2>/dev/null", "", 126, {}),
    "prints without a newline": ("printf x", "x", 0, {}),
    "prints a zero byte": (r"printf 'a\0b'", "a\0b", 0, {}),
    "prints carriage returns": (r"printf 'a\r\nb\r'", "a\r\nb\r", 0, {}),
    "heredoc": ("cat <<END\none\ntwo\nEND", "one\ntwo\n", 0, {}),
    "quoted heredoc": ("X=1; cat <<'END'\n$X `id`\nEND", "$X `id`\n", 0, {}),
    "heredoc with tabs": ("cat <<-END\n\tone\n\tEND", "one\n", 0, {}),
    "heredoc to a program": ("python3 - <<END\nprint(6 * 7)\nEND", "42\n", 0, {}),
    "here string": ("cat <<<hello", "hello\n", 0, {}),
    "pipeline": ("printf 'b\\na\\n' | sort | tr -d '\\n'", "ab", 0, {}),
    "pipeline that breaks": ("yes | head -n 2", "y\ny\n", 0, {}),
    "pipefail": ("set -o pipefail; false | true", "", 1, {}),
    "process substitution": ("diff <(echo a) <(echo a) && echo same", "same\n", 0, {}),
    "command substitution": ("echo $(echo $(echo deep))", "deep\n", 0, {}),
    "single quotes": ("echo 'a  b'", "a  b\n", 0, {}),
    "double quotes": ('X="a  b"; echo "$X"', "a  b\n", 0, {}),
    "quote in quotes": ("""echo "it's" 'so "called"'""", 'it\'s so "called"\n', 0, {}),
    "backslashes": (r"printf '%s' 'a\b\\c'", r"a\b\\c", 0, {}),
    "dollar quoting": (r"printf '%s' $'a\tb'", "a\tb", 0, {}),
    "globbing": ("mkdir -p /tmp/g; cd /tmp/g; touch a b; echo *", "a b\n", 0, {}),
    "no globbing in quotes": ("cd /; echo '*'", "*\n", 0, {}),
    "brace expansion": ("echo {1..3}", "1 2 3\n", 0, {}),
    "arithmetic": ("echo $((2**62))", "4611686018427387904\n", 0, {}),
    "unicode": ("echo 'äöü 🐇 中文'", "äöü 🐇 中文\n", 0, {}),
    "unicode in arguments": ("echo ${#X}", "1\n", 0, {"env": {"X": "🐇", "LC_ALL": "C.UTF-8"}}),
    "read at the end of input": ("read line; echo $?", "1\n", 0, {}),
    "cat without input": ("cat; echo done", "done\n", 0, {}),
    "input": ("cat", "some text", 0, {"stdin": "some text"}),
    "empty input": ("cat; echo done", "done\n", 0, {"stdin": ""}),
    "input line by line": ("while read l; do echo [$l]; done", "[a]\n[b]\n", 0, {"stdin": "a\nb\n"}),
    "input that nobody reads": ("true", "", 0, {"stdin": "x" * 300_000}),
    "large input": ("wc -c", "3000000\n", 0, {"stdin": "y" * 3_000_000}),
    "input that ends": ("head -c 3; cat >/dev/null; echo; echo end", "abc\nend\n", 0, {"stdin": "abcdef"}),
    "input to a child": ("bash -c 'cat'", "inner", 0, {"stdin": "inner"}),
    "binary input": ("od -An -tx1 | tr -d ' \\n'", "00ff80fe0a", 0, {"stdin_base64": "AP+A/go="}),
    "all bytes of input": (
        "md5sum | cut -c1-32", "e2c865db4162bed963bfaa9ef6ac18f0\n", 0,
        {"stdin_base64": base64.b64encode(bytes(range(256))).decode()},
    ),
    "large script": ("echo " + "x" * 100_000 + " | wc -c", "100001\n", 0, {}),
    "many arguments": ("echo " + "a " * 20_000 + "| wc -w", "20000\n", 0, {}),
    "many lines of script": ("x=0\n" + "x=$((x+1))\n" * 5_000 + "echo $x", "5000\n", 0, {}),
    "variable": ("echo $A", "1\n", 0, {"env": {"A": "1"}}),
    "variable with a newline": ('printf "%s" "$A"', "a\nb", 0, {"env": {"A": "a\nb"}}),
    "variable with an equals sign": ('printf "%s" "$A"', "x=y=z", 0, {"env": {"A": "x=y=z"}}),
    "variable that is empty": ('printf "[%s]" "${A-unset}"', "[]", 0, {"env": {"A": ""}}),
    "the path has the usual places": ("case :$PATH: in *:/usr/bin:*) echo yes;; esac", "yes\n", 0, {}),
    "home": ("echo $HOME", "/root\n", 0, {}),
    "directory": ("pwd", "/tmp\n", 0, {"cwd": "/tmp"}),
    "directory without": ("pwd", "/root\n", 0, {}),
    "user": ("id -un", "nobody\n", 0, {"user": "nobody"}),
    "user by number": ("id -u", "65534\n", 0, {"user": "65534"}),
    "user without": ("id -u", "0\n", 0, {}),
    "stdout and stderr in one": ("echo out; echo err >&2", "out\n", 0, {}),
    "closed output": ("exec 1>&- 2>&-; true", "", 0, {}),
    "redirected output": ("echo x > /dev/null", "", 0, {}),
    "device files": ("echo a > /dev/stderr; cat < /dev/null; head -c 2 /dev/zero | wc -c", "2\n", 0, {}),
    "descriptor files": ("echo a | cat /dev/fd/0; echo b | cat /dev/stdin", "a\nb\n", 0, {}),
    "shared memory": ("echo x > /dev/shm/a && cat /dev/shm/a", "x\n", 0, {}),
    "random": ("head -c 100 /dev/urandom | wc -c", "100\n", 0, {}),
    "terminal": ("tty; test -t 1 || echo none", "not a tty\nnone\n", 0, {}),
    "exec": ("exec echo replaced", "replaced\n", 0, {}),
    "trap at the end": ("trap 'echo bye' EXIT; echo hi", "hi\nbye\n", 0, {}),
    "wait for children": ("(sleep 0.1; echo late) & wait; echo end", "late\nend\n", 0, {}),
    "named pipe": ("rm -f /tmp/p; mkfifo /tmp/p; echo x > /tmp/p & cat /tmp/p", "x\n", 0, {}),
    "login shell": ("bash -lc 'echo in'", "in\n", 0, {}),
    "timeout program": ("timeout 0.1 sleep 60; echo $?", "124\n", 0, {}),
    "own process group": ("ps -o pgid= -p $$ | tr -d ' ' | grep -vx 1 | wc -l", "1\n", 0, {}),
    "resources": ("ulimit -n; nproc", None, 0, {}),
    "time zone": ("date +%Z", "UTC\n", 0, {}),
    "temporary folder": ("T=$(mktemp) && test -w $T && stat -c %a /tmp", "1777\n", 0, {}),
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet(sandbox, name):
    script, stdout, code, fields = SNIPPETS[name]
    result = sandbox.shell(script, **fields)
    assert result["exit_code"] == code, result
    assert stdout is None or result["stdout"] == stdout, result


def test_output_streams_stay_apart(sandbox):
    result = sandbox.shell("for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 3")
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("out1\nout2\nout3\n", "err1\nerr2\nerr3\n", 3)


def test_no_shell_stands_between(sandbox):
    assert sandbox.run("echo", "$HOME", "*", "a b", "")["stdout"] == "$HOME * a b \n"


def test_arguments_arrive_as_they_are(sandbox):
    arguments = ["", " ", "-n", "--", "a\nb", "ä🐇", "'\"\\$`", "\x01\x7f", "x" * 100_000]
    result = sandbox.run("python3", "-c", "import sys, json; json.dump(sys.argv[1:], sys.stdout)", *arguments)
    assert json.loads(result["stdout"]) == arguments


@pytest.mark.parametrize("size", [130_000, 2_000_000])
def test_a_large_script_arrives(sandbox, size):
    """A single argument has a limit in the kernel; standard input has none."""
    script = "#" + "x" * size + "\nprint('reached')\n"
    assert sandbox.run("python3", "-", stdin=script)["stdout"] == "reached\n"


def test_a_program_that_is_not_there(sandbox):
    result = sandbox.run("no-such-program-anywhere")
    assert result["exit_code"] == 127 and "no-such-program-anywhere" in result["error"]


def test_a_program_that_cannot_be_executed(sandbox):
    result = sandbox.run("/etc/passwd")
    assert result["exit_code"] == 126 and result["error"]


# Row 10: the end of the command is the end of the exec.

#: Scripts that leave something behind which holds the output open for an hour.
HOLDERS = {
    "background child": "sleep 3600 & echo done",
    "nohup": "nohup sleep 3600 & echo done",
    "daemon": "setsid sleep 3600 & disown; echo done",
    "double fork": "(sleep 3600 &) ; echo done",
    "silent descriptor": "exec 9>&1; sleep 3600 >/dev/null 2>&1 & echo done",
    "redirected": "sleep 3600 >/dev/null 2>&1 & echo done",
    "coprocess": "coproc sleep 3600; echo done",
    "python daemon": "python3 -c 'import os,time\nif os.fork()==0:\n os.setsid()\n time.sleep(3600)' ; echo done",
}


@pytest.mark.parametrize("name", HOLDERS)
def test_an_exec_ends_with_its_command(sandbox, name):
    """The client gives up after two minutes, which is long before the hour is over."""
    result = sandbox.shell(HOLDERS[name])
    assert (result["stdout"].splitlines()[-1], result["exit_code"]) == ("done", 0), result
    with sandbox.stream("bash", "-c", HOLDERS[name]) as stream:
        frames = list(stream.frames())
    assert frames[-1]["exit_code"] == 0 and "done" in text(frames)


def test_late_output_of_a_child_is_still_caught(sandbox):
    result = sandbox.shell("(sleep 0.02; echo late) & echo early")
    assert result["stdout"] == "early\nlate\n"


def test_a_background_child_lives_on(sandbox):
    """It is not killed with the command: servers are started like this."""
    sandbox.shell("rm -f /tmp/go /tmp/went; (until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/went) >/dev/null 2>&1 &")
    sandbox.check("touch /tmp/go")
    until(lambda: sandbox.shell("test -e /tmp/went")["exit_code"] == 0, "the child to see the file")


# Row 11: never a false success.


def text(frames, name="stdout"):
    return "".join(frame.get(name, "") for frame in frames)


def test_a_stream_tells_the_exit_code_last(sandbox):
    with sandbox.stream("bash", "-c", "echo a; echo b >&2; exit 9") as stream:
        assert stream.status == 200 and stream.headers["Content-Type"].startswith("application/x-ndjson")
        frames = list(stream.frames())
    assert (text(frames), text(frames, "stderr")) == ("a\n", "b\n")
    assert [frame.get("exit_code") for frame in frames][-1] == 9
    assert sum("exit_code" in frame for frame in frames) == 1


def test_frames_come_while_the_command_runs(sandbox):
    """Each line is printed only after we saw the one before."""
    script = "for i in 1 2 3; do echo $i; until [ -e /tmp/live$i ]; do sleep 0.02; done; done"
    sandbox.check("rm -f /tmp/live*")
    seen = []
    with sandbox.stream("bash", "-c", script) as stream:
        for frame in stream.frames():
            for line in frame.get("stdout", "").split():
                seen.append(line)
                sandbox.check(f"touch /tmp/live{line}")
    assert seen == ["1", "2", "3"] and frame["exit_code"] == 0


def test_a_quiet_stream_shows_that_it_lives(sandbox):
    with sandbox.stream("sleep", "3600") as stream:
        assert next(stream.frames()) == {"hb": True}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGHUP])
def test_a_signal_is_told_apart_from_an_exit(sandbox, number):
    result = sandbox.shell(f"kill -{number.value} $$")
    assert result["exit_code"] == 128 + number and result["signal"] == number.name, result
    assert "timed_out" not in result and "oom" not in result


def test_a_kernel_that_dies_is_no_success(create):
    sandbox = create()
    with sandbox.stream("bash", "-c", "echo begun; sleep 3600") as stream:
        frames = stream.frames()
        assert next(frames)["stdout"] == "begun\n"
        sandbox.kill_kernel()
        rest = list(frames)
    assert rest and "error" in rest[-1] and rest[-1].get("code") == "sandbox_lost", rest
    assert not any("exit_code" in frame for frame in rest)
    until(lambda: sandbox.refresh()["status"] == "failed", "the loss to be noticed")
    answer = sandbox.execute("true")
    assert (answer.status, answer.code) == (409, "wrong_state")


def test_a_buffered_exec_in_a_dying_sandbox_fails(create):
    sandbox = create()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(sandbox.execute, "sh", "-c", "echo begun > /root/begun; sleep 3600")
        until(lambda: sandbox.shell("test -e /root/begun")["exit_code"] == 0, "the command to run")
        sandbox.kill_kernel()
        answer = answer.result()
    assert (answer.status, answer.code) == (500, "sandbox_lost"), answer


# Row 12: timeouts.


def test_a_timeout_kills_and_keeps_what_was_written(sandbox):
    result = sandbox.shell("printf x; printf y >&2; sleep 3600", timeout_ms=300)
    assert (result["stdout"], result["stderr"]) == ("x", "y")
    assert result["timed_out"] is True and result["exit_code"] == 124


def test_a_timeout_takes_the_whole_tree(sandbox):
    nested = "sleep 4441 & setsid sleep 4441 & (sleep 4441 & sleep 4441) & trap '' TERM INT HUP; printf x; sleep 4441"
    result = sandbox.shell(nested, timeout_ms=500)
    assert result["timed_out"] is True and result["stdout"] == "x"
    gone(sandbox, "sleep 4441")


def test_a_timeout_in_a_stream(sandbox):
    with sandbox.stream("bash", "-c", "echo x; sleep 3600", timeout_ms=300) as stream:
        frames = list(stream.frames())
    assert text(frames) == "x\n" and frames[-1]["timed_out"] is True and frames[-1]["exit_code"] == 124


def test_a_timeout_that_is_not_needed(sandbox):
    result = sandbox.shell("echo quick", timeout_ms=60_000)
    assert result["stdout"] == "quick\n" and "timed_out" not in result


def gone(sandbox, command):
    """Waits until no process of this command line is left."""
    first, rest = command[0], command[1:]
    until(lambda: sandbox.shell(f"pgrep -f '[{first}]{rest}'")["exit_code"] == 1, f"{command} to be gone")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "buffered"])
def test_who_goes_away_takes_the_command_along(sandbox, stream):
    sandbox.check("rm -f /tmp/started")
    body = {"cmd": "bash", "args": ["-c", "touch /tmp/started; sleep 5551 & sleep 5551"], "stream": stream}
    connection = sandbox.wire.connect()
    query = "?stream=true" if stream else ""
    headers = sandbox.wire.headers(content="application/json")
    connection.request("POST", f"{sandbox.path}/exec{query}", json.dumps(body), headers)
    until(lambda: sandbox.shell("test -e /tmp/started")["exit_code"] == 0, "the command to start")
    connection.close()
    gone(sandbox, "sleep 5551")


# Row 13: characters are never torn.

RABBIT = "🐇é中\n"
BYTE_BY_BYTE = f"""
import sys, time
for byte in ({RABBIT!r} * 20).encode():
    sys.stdout.buffer.write(bytes([byte])); sys.stdout.buffer.flush(); time.sleep(0.001)
"""


def test_characters_are_whole_in_every_frame(sandbox):
    with sandbox.stream("python3", "-c", BYTE_BY_BYTE) as stream:
        frames = list(stream.frames())
    assert text(frames) == RABBIT * 20
    assert not any("\ufffd" in frame.get("stdout", "") for frame in frames)


def test_characters_are_whole_in_a_buffered_answer(sandbox):
    assert sandbox.run("python3", "-c", BYTE_BY_BYTE)["stdout"] == RABBIT * 20


def test_bytes_that_are_no_text_are_kept_when_asked_for(sandbox):
    every = bytes(range(256)) * 3
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3); sys.stderr.buffer.write(b'\\xff\\x00')"
    result = sandbox.run("python3", "-c", script, encoding="base64")
    assert base64.b64decode(result["stdout_base64"]) == every
    assert base64.b64decode(result["stderr_base64"]) == b"\xff\x00"
    with sandbox.stream("python3", "-c", script, encoding="base64") as stream:
        frames = list(stream.frames())
    assert b"".join(base64.b64decode(frame.get("stdout_base64", "")) for frame in frames) == every


def test_bytes_that_are_no_text_are_replaced_otherwise(sandbox):
    assert sandbox.shell(r"printf 'a\xffb'")["stdout"] == "a\ufffdb"


def test_a_character_cut_off_at_the_end_is_replaced(sandbox):
    with sandbox.stream("bash", "-c", r"printf 'a\xf0\x9f'") as stream:
        frames = list(stream.frames())
    assert text(frames).startswith("a\ufffd") and frames[-1]["exit_code"] == 0


# Row 14: output without end.

GIB = 1 << 30
MIB = 1 << 20


def prints(mebibytes, after=""):
    """A program that prints so much at full speed."""
    return f"import sys\nfor _ in range({mebibytes}): sys.stdout.buffer.write(b'a' * {MIB})\nsys.stdout.flush()\n{after}"


@pytest.mark.timeout(600)
def test_a_gigabyte_flows_through_in_bounded_memory(service, sandbox):
    before = service.resident()
    highest, count = before, 0
    with sandbox.stream("python3", "-c", prints(1024)) as stream:
        for number in itertools.count():
            piece = stream.read(MIB)
            if not piece:
                break
            count += piece.count(b"a")
            tail = piece
            if number % 256 == 0:
                highest = max(highest, service.resident())
    assert b'"exit_code":0' in tail.replace(b" ", b"")
    assert count >= GIB, "the frames' own words have the letter too"
    assert highest - before < 128 << 20, f"the service grew by {(highest - before) >> 20} MiB"


def test_a_reader_that_stops_stops_the_writer(service, sandbox):
    """Nobody reads: the command has to wait, and the service must not gather what it writes."""
    before = service.resident()
    sandbox.check("rm -f /tmp/written")
    script = "i=0; while head -c 1048576 /dev/zero | tr '\\0' a; do i=$((i+1)); echo $i > /tmp/written; done"
    with sandbox.stream("bash", "-c", script):
        read = lambda: int(sandbox.shell("cat /tmp/written 2>/dev/null || echo 0")["stdout"])
        until(lambda: read() > 0, "the command to write")

        def stands_still():
            first = read()
            sandbox.check("sleep 0.3")
            return first == read()

        until(stands_still, "the writer to stand still")
        assert read() < 64, f"{read()} MiB were taken though nobody reads"
        assert service.resident() - before < 64 << 20
    until(lambda: sandbox.shell("pgrep -x tr")["exit_code"] == 1, "the command to be killed")


def test_a_buffered_answer_is_cut_and_says_so(service, sandbox):
    result = sandbox.run("python3", "-c", prints(256, "print('end', file=sys.stderr); sys.exit(5)"))
    assert len(result["stdout"]) == 16 << 20 and result["stderr"] == "end\n" and result["exit_code"] == 5
    assert result["truncated"] is True and result["stdout_truncated"] is True
    assert not result.get("stderr_truncated")
    assert service.resident() < 400 << 20


def test_a_limit_of_output_holds_for_each_stream(sandbox):
    result = sandbox.shell("printf aaaaaaaaaa; printf bbb >&2", max_output_bytes=4)
    assert (result["stdout"], result["stderr"]) == ("aaaa", "bbb")
    assert result["stdout_truncated"] is True and not result.get("stderr_truncated")
    with sandbox.stream("bash", "-c", "printf aaaaaaaaaa; printf bbb >&2", max_output_bytes=4) as stream:
        frames = list(stream.frames())
    assert text(frames) == "aaaa" and frames[-1]["stdout_truncated"] is True


def test_a_limit_never_tears_a_character(sandbox):
    result = sandbox.shell("printf 'aé'", max_output_bytes=2)
    assert result["stdout"].startswith("a") and result["truncated"] is True
    assert result["stdout"] in ("a", "a\ufffd")


# Row 16: processes are gathered and ended.


def test_no_zombies_are_left(sandbox):
    sandbox.check("for i in $(seq 300); do (true &) ; done; for i in $(seq 50); do (sleep 0.01 &) ; done")
    for _ in range(50):
        sandbox.run("true")
    zombies = "ps -eo stat= | grep -c '^Z'"
    until(lambda: sandbox.shell(zombies)["stdout"].strip() == "0", "zombies to be gathered")


def test_commands_run_beside_each_other(sandbox):
    """Sixteen streams at once, each waiting for a file that the last one makes."""
    sandbox.check("rm -f /tmp/all-start")
    streams = [
        sandbox.stream("bash", "-c", f"echo {n}; until [ -e /tmp/all-start ]; do sleep 0.02; done; exit {n}")
        for n in range(16)
    ]
    readers = [stream.frames() for stream in streams]
    assert [next(reader)["stdout"] for reader in readers] == [f"{n}\n" for n in range(16)]
    sandbox.check("touch /tmp/all-start")
    assert [list(reader)[-1]["exit_code"] for reader in readers] == list(range(16))
    for stream in streams:
        stream.close()


def test_exec_keeps_working_after_many(sandbox):
    for number in range(100):
        assert sandbox.run("echo", str(number))["stdout"] == f"{number}\n"


def test_a_kept_connection_serves_many(sandbox):
    connection = sandbox.wire.connect()
    for number in range(20):
        answer = sandbox.wire.post(
            f"{sandbox.path}/exec", {"cmd": "echo", "args": [str(number)]}, connection=connection
        )
        assert answer.data["result"]["stdout"] == f"{number}\n" and answer.data["exec_ms"] >= 0
    connection.close()
