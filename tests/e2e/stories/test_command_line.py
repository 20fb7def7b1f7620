"""`hutch`, as a user has it: at a terminal, in a pipe, in a script."""

import json
import os
import signal

import pytest

from conftest import IMAGE, SHAPE
from harness.service import ROOT
from harness.wait import until

JOB = ROOT / "examples" / "first-job"


def sandboxes(account):
    return {view["id"] for view in account.get("/v1/sandboxes?limit=500").data["data"]}


def test_run_gives_the_commands_output_and_exit_code(hutch, account):
    before = sandboxes(account)
    run = hutch.run("run", "--shape", SHAPE, "--", "python3", "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert run.returncode == 7 and run.stdout == b"out\n", run
    assert b"err\n" in run.stderr
    until(lambda: sandboxes(account) <= before, "the sandbox to be gone")


def test_run_passes_arguments_as_they_are(hutch):
    run = hutch.run("run", "--", "python3", "-c", "import sys; print(sys.argv[1:])", "--flag", "a b", "", "$HOME", "ä")
    assert run.stdout.decode() == "['--flag', 'a b', '', '$HOME', 'ä']\n"


def test_run_with_a_script(hutch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, platform\nprint(platform.release(), sys.argv[1:])\n")
    run = hutch.run("run", "--file", script, "--", "one", "two")
    assert run.returncode == 0, run
    assert "['one', 'two']" in run.stdout.decode() and os.uname().release not in run.stdout.decode()


def test_run_takes_its_input_from_the_pipe(hutch):
    assert hutch.run("run", "--", "wc", "-c", input=b"x" * 100_000).stdout == b"100000\n"


def test_run_keeps_bytes_as_they_are(hutch):
    run = hutch.run("run", "--", "python3", "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert run.stdout == bytes(range(256))


def test_run_sets_the_environment(hutch):
    run = hutch.run("run", "--env", "A=x y", "--env", "B=1=2", "--", "sh", "-c", 'echo "$A|$B"')
    assert run.stdout == b"x y|1=2\n"


def test_run_streams_while_the_command_runs(hutch):
    run = hutch.start("run", "--keep", "--", "sh", "-c", "echo begun; sleep 3600")
    try:
        assert run.stdout.readline() == b"begun\n"
        assert run.poll() is None
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(60)


def test_run_ends_a_command_that_takes_too_long(hutch):
    run = hutch.run("run", "--timeout", "1s", "--", "sh", "-c", "echo before; sleep 3600")
    assert run.returncode == 124 and run.stdout == b"before\n" and b"time" in run.stderr.lower(), run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_leaves_nothing(hutch, account, number):
    before = sandboxes(account)
    run = hutch.start("run", "--", "sh", "-c", "echo begun; sleep 3600")
    assert run.stdout.readline() == b"begun\n"
    run.send_signal(number)
    assert run.wait(60) == 128 + number
    until(lambda: sandboxes(account) <= before, "the sandbox to be gone")


def test_a_run_that_is_interrupted_while_it_creates_leaves_nothing(hutch, account):
    before = sandboxes(account)
    run = hutch.start("run", "--", "sleep", "3600")
    until(lambda: sandboxes(account) - before, "the sandbox to be under way")
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    until(lambda: sandboxes(account) <= before, "the sandbox to be gone")


def test_a_pipe_that_is_closed_is_no_error(hutch):
    run = hutch.start("run", "--", "sh", "-c", "yes | head -n 1000000")
    run.stdout.readline()
    run.stdout.close()
    assert run.wait(60) in (0, 128 + signal.SIGPIPE)
    assert b"panicked" not in run.stderr.read()


def test_keep_keeps_the_sandbox(hutch, account):
    before = sandboxes(account)
    run = hutch.run("run", "--keep", "--", "sh", "-c", "echo x > /root/kept")
    assert run.returncode == 0
    [kept] = sandboxes(account) - before
    assert kept.encode() in run.stderr
    assert hutch.run("exec", kept, "--", "cat", "/root/kept").stdout == b"x\n"
    assert hutch.run("rm", kept).returncode == 0


def test_the_first_job(hutch, tmp_path):
    report = tmp_path / "report.json"
    run = hutch.run(
        "run", "--file", JOB / "job.py", "--push", f"{JOB / 'orders.csv'}:/root/orders.csv", "--pull", f"/root/report.json:{report}"
    )
    assert run.returncode == 0, run
    assert b"480 orders" in run.stdout and b"kernel" in run.stdout
    assert json.loads(report.read_text())["orders"] == 480


def test_a_sandbox_by_hand(hutch, sandbox_name, tmp_path):
    """create, ls, get, push, exec, pull, rm: each with output for programs."""
    made = json.loads(hutch.run("create", "--name", sandbox_name, "--shape", SHAPE, "--image", IMAGE, "--json").stdout)
    assert made["status"] == "running" and made["name"] == sandbox_name
    assert sandbox_name in hutch.run("ls").stdout.decode()
    assert made["id"] in json.dumps(json.loads(hutch.run("ls", "--json").stdout))
    assert json.loads(hutch.run("get", sandbox_name, "--json").stdout)["id"] == made["id"]
    assert made["id"] in hutch.run("get", made["id"]).stdout.decode()

    content = os.urandom(3_000_001)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(content)
    assert hutch.run("push", sandbox_name, source, "/root/new/file").returncode == 0
    assert hutch.run("exec", sandbox_name, "--", "wc", "-c", "/root/new/file").stdout.split()[0] == b"3000001"
    assert hutch.run("pull", sandbox_name, "/root/new/file", back).returncode == 0
    assert back.read_bytes() == content
    assert hutch.run("push", sandbox_name, "-", "/root/piped", input=b"from a pipe").returncode == 0
    assert hutch.run("pull", sandbox_name, "/root/piped", "-").stdout == b"from a pipe"

    assert hutch.run("exec", sandbox_name, "--", "sh", "-c", "exit 9").returncode == 9
    assert hutch.run("exec", sandbox_name, "--", "cat", input=b"in").stdout == b"in"
    assert hutch.run("rm", sandbox_name).returncode == 0
    gone = hutch.run("exec", sandbox_name, "--", "true")
    assert gone.returncode not in (0, 101) and b"hint" in gone.stderr.lower() or b"error" in gone.stderr.lower()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["run", "--image", "windows:95", "--", "true"], ["windows:95", IMAGE]),
        (["run", "--shape", "s-0vcpu", "--", "true"], ["s-0vcpu", SHAPE]),
        (["run", "--engine", "steam", "--", "true"], ["steam"]),
        (["run"], ["Usage"]),
        (["run", "--env", "NOVALUE", "--", "true"], ["NOVALUE"]),
        (["run", "--file", "/no/such/script.py"], ["/no/such/script.py"]),
        (["get", "no-such-sandbox"], ["no-such-sandbox"]),
        (["push", "no-such-sandbox", "/etc/hostname", "/x"], ["no-such-sandbox"]),
        (["create", "--timeout", "soon"], []),
        (["frobnicate"], ["frobnicate"]),
    ],
)
def test_what_is_asked_wrongly_is_told_on_stderr(hutch, arguments, words):
    run = hutch.run(*arguments)
    assert run.returncode not in (0, 101) and run.stdout == b"", run
    text = run.stderr.decode()
    assert "panicked" not in text and "error" in text.lower() or "Usage" in text
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


def test_a_wrong_key_and_a_service_that_is_not_there(hutch):
    from harness.command import CommandLine

    url = hutch.environment["HUTCH_URL"]
    run = CommandLine(url, "skp_wrong").run("ls")
    assert run.returncode not in (0, 101) and b"key" in run.stderr.lower()
    run = CommandLine("http://127.0.0.1:9", "skp_wrong").run("ls")
    assert run.returncode not in (0, 101) and b"hutch serve" in run.stderr, run.stderr


def test_doctor_names_each_prerequisite_and_what_to_do(hutch):
    run = hutch.run("doctor")
    assert run.returncode == 0, run
    assert b"loopback" in run.stdout.lower() and b"kernel" in run.stdout.lower()
    report = json.loads(hutch.run("doctor", "--json").stdout)
    assert report["findings"] and all({"check", "status", "found"} <= finding.keys() for finding in report["findings"])


def test_audit_names_an_owner_for_each_artefact(hutch, create):
    sandbox = create()
    run = hutch.run("audit", "--json")
    assert run.returncode == 0, run
    assert any(artefact.get("owner") == sandbox.id for artefact in json.loads(run.stdout)["artefacts"])


def test_audit_finds_an_orphan_and_fails(service, hutch, account):
    orphan = service.data / "sandboxes" / "sb-01jzzzzzzzzzzzzzzzzzzzzzzz"
    orphan.mkdir()
    (orphan / "disk.ext4").write_bytes(b"left behind")
    try:
        run = hutch.run("audit")
        assert run.returncode == 1 and b"sb-01jzzzzzzzzzzzzzzzzzzzzzzz" in run.stdout, run
    finally:
        (orphan / "disk.ext4").unlink()
        orphan.rmdir()
    assert hutch.run("audit").returncode == 0


def test_every_command_explains_itself(hutch):
    top = hutch.run("--help").stdout.decode()
    for command in ("run", "serve", "create", "ls", "get", "exec", "push", "pull", "rm", "doctor", "audit"):
        assert command in top
        explained = hutch.run(command, "--help")
        assert explained.returncode == 0 and len(explained.stdout.decode().splitlines()) > 5, command


def test_no_colour_in_a_pipe(hutch):
    for arguments in (["ls"], ["doctor"], ["--help"], ["get", "none"]):
        run = hutch.run(*arguments)
        assert b"\x1b[" not in run.stdout + run.stderr
