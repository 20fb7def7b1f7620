"""Pause and resume: nothing is held while paused, nothing is lost, whatever comes in between."""

import os
import threading
import time

import pytest

from conftest import make
from harness.life import Life
from harness.wait import until
from harness.wire import Sandbox

#: How often the long story goes round.
CYCLES = int(os.environ.get("HUTCH_E2E_CYCLES", "50"))
WHOLE_VIEW = {"id", "status", "name", "shape", "vcpu", "mem_mib", "disk_mib", "created_at", "ingress_enabled"}


def skew(sandbox):
    """Seconds by which the guest's wall clock is certainly off the host's."""
    before = time.time()
    guest = float(sandbox.check("date +%s.%N"))
    return max(before - guest, guest - time.time(), 0)


def test_what_is_paused_holds_nothing_and_comes_back_as_it_was(create):
    sandbox = create()
    life = Life(sandbox)
    assert sandbox.processes()
    paused = sandbox.pause()
    assert (paused.status, paused.data["status"]) == (200, "paused") and paused.data["paused_at"]
    assert paused.data.keys() >= WHOLE_VIEW, "a client takes the answer for the whole sandbox"
    assert sandbox.processes() == [], "no process is left on the host"
    assert sandbox.refresh()["status"] == "paused"
    resumed = sandbox.resume()
    assert (resumed.status, resumed.data["status"]) == (200, "running") and resumed.data["last_resumed_at"]
    assert resumed.data.keys() >= WHOLE_VIEW
    life.goes_on(sandbox)


@pytest.mark.timeout(900)
def test_many_cycles_lose_nothing(create):
    """A counter, a growing file, a pipe, a socket, a connection and a database go through all of them."""
    sandbox = create()
    life = Life(sandbox)
    for cycle in range(CYCLES):
        sandbox.check(f"echo {cycle} >>/root/cycles")
        sandbox.pause()
        sandbox.resume()
        life.goes_on(sandbox)
    assert sandbox.check("cat /root/cycles").split() == [str(cycle) for cycle in range(CYCLES)]
    assert life.last["count"] > life.first["count"] and life.last["rows"] > life.first["rows"], "it did work"


def test_it_is_begun_at_once_and_waited_for_when_asked(create):
    sandbox = create()
    answer = sandbox.pause(wait=False)
    assert (answer.status, answer.data["status"]) in {(202, "pausing"), (200, "paused")}
    assert answer.data.keys() >= WHOLE_VIEW
    if answer.status == 202:
        assert int(answer.headers["X-Poll-After"]) >= 1
    until(lambda: sandbox.refresh()["status"] == "paused", "the pause to be done")
    assert sandbox.pause().status == 200, "what is paused is paused"
    answer = sandbox.resume(wait=False)
    assert (answer.status, answer.data["status"]) in {(202, "resuming"), (200, "running")}
    until(lambda: sandbox.refresh()["status"] == "running", "the resume to be done")
    assert sandbox.resume().status == 200, "what runs, runs"
    assert sandbox.check("echo up") == "up\n"


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 7, 15, 30, 50])
def test_a_resume_that_comes_right_after_a_pause(create, milliseconds):
    sandbox = create()
    life = Life(sandbox)
    for _ in range(3):
        sandbox.pause(wait=False)
        # Not a wait for anything: the moment at which the resume comes is what the story is about.
        time.sleep(milliseconds / 1000)
        assert sandbox.resume().data["status"] == "running"
        life.goes_on(sandbox)


def test_many_who_pause_and_resume_at_once_end_in_one_state(create):
    sandbox = create()
    life = Life(sandbox)
    answers = []

    def press(change):
        for _ in range(5):
            answers.append(change(wait=False))

    threads = [threading.Thread(target=press, args=(change,)) for change in (sandbox.pause, sandbox.resume) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answers} <= {200, 202, 409}, answers
    assert sandbox.resume().data["status"] == "running"
    life.goes_on(sandbox)


def test_an_attached_stream_is_told_and_its_command_goes_on(create):
    sandbox = create()
    with sandbox.stream("bash", "-c", "echo begun; while :; do date +%s >>/root/beats; sleep 0.05; done") as stream:
        frames = stream.frames()
        assert next(frames)["stdout"] == "begun\n"
        sandbox.pause()
        rest = [frame for frame in frames if "hb" not in frame]
    assert not any("exit_code" in frame for frame in rest), rest
    assert rest[-1]["code"] == "sandbox_paused" and "paused" in rest[-1]["error"], rest
    sandbox.resume()
    beats = lambda: int(sandbox.check("wc -l </root/beats"))
    before = beats()
    until(lambda: beats() > before, "the command to go on")


def test_a_buffered_command_is_told(create):
    sandbox = create()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(sandbox.execute("sh", "-c", "touch /root/on; sleep 3600")))
    thread.start()
    until(lambda: sandbox.shell("test -e /root/on")["exit_code"] == 0, "the command to be on its way")
    sandbox.pause()
    thread.join(60)
    assert (answers[0].status, answers[0].code) == (409, "sandbox_paused"), answers[0]


def test_what_is_asked_of_a_paused_sandbox(create):
    sandbox = create()
    sandbox.write("/root/file", b"kept")
    sandbox.pause()
    for answer in (sandbox.execute("true"), sandbox.read("/root/file"), sandbox.write("/root/file", b"new")):
        assert (answer.status, answer.code) == (409, "wrong_state"), answer
        assert "paused" in answer.message and "resume" in answer.message, answer
    assert sandbox.wire.patch(sandbox.path, {"labels": {"a": "b"}}).data["labels"] == {"a": "b"}
    assert sandbox.id in [view["id"] for view in sandbox.wire.get("/v1/sandboxes?status=paused&limit=500").data["data"]]
    assert sandbox.wire.get("/v1/whoami").data["stats"]["paused"] >= 1
    sandbox.resume()
    assert sandbox.read("/root/file").body == b"kept"


def test_what_cannot_be_paused(account, stranger, create):
    assert account.post("/v1/sandboxes/sb-00000000000000000000000000/pause").status == 404
    sandbox = create()
    assert Sandbox(stranger, sandbox.view).pause(wait=False).status == 404
    assert Sandbox(stranger, sandbox.view).resume(wait=False).status == 404
    sandbox.destroy()
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")
    for answer in (sandbox.pause(wait=False), sandbox.resume(wait=False)):
        assert (answer.status, answer.code) == (409, "wrong_state"), answer


def test_clocks_are_right_after_a_pause(create):
    sandbox = create()
    assert skew(sandbox) < 0.05
    began = float(sandbox.check("date +%s.%N"))
    sandbox.pause()
    paused = time.time()
    # The wait is for the clock itself to move: what is shown is that a pause does not stop it.
    until(lambda: time.time() > paused + 1.5, "time to pass")
    sandbox.resume()
    assert skew(sandbox) < 0.05
    assert float(sandbox.check("date +%s.%N")) - began >= 1.5


def test_memory_is_the_same_to_the_last_byte(create):
    """128 MiB of pattern, with something else at work all the time."""
    sandbox = create(shape="s-1vcpu-512mb")
    sandbox.check("head -c 128M /dev/urandom >/dev/shm/pattern && sha256sum /dev/shm/pattern >/root/sum")
    sandbox.check("(while :; do head -c 4M /dev/urandom >/dev/shm/noise; done) >/dev/null 2>&1 &")
    for _ in range(3):
        sandbox.pause()
        sandbox.resume()
        assert sandbox.shell("sha256sum -c /root/sum")["exit_code"] == 0
    copy = sandbox.fork()[0]
    try:
        assert copy.shell("sha256sum -c /root/sum")["exit_code"] == 0
    finally:
        copy.destroy()


@pytest.mark.parametrize("state", ["paused", "pausing", "resuming"])
def test_it_can_be_destroyed_from(create, state):
    sandbox = create()
    sandbox.pause(wait=state != "pausing")
    if state == "resuming":
        sandbox.resume(wait=False)
    assert sandbox.destroy().status == 200
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")
    assert sandbox.processes() == []


def test_the_command_line(hutch, create, sandbox_name):
    sandbox = create(name=sandbox_name)
    life = Life(sandbox)
    run = hutch.run("pause", sandbox_name)
    assert (run.returncode, run.stdout) == (0, b"") and f"paused: {sandbox_name} (".encode() in run.stderr
    listed = next(line for line in hutch.run("ls").stdout.decode().splitlines() if sandbox.id in line)
    assert " paused " in listed
    refused = hutch.run("exec", sandbox_name, "--", "true")
    assert refused.returncode == 125 and b"hint: `hutch resume` brings it back" in refused.stderr
    run = hutch.run("resume", "--json", sandbox_name)
    assert run.returncode == 0 and b'"status":"running"' in run.stdout
    life.goes_on(sandbox)
    assert hutch.run("pause", "nobody-here").returncode == 1


# ---- the service goes and comes back ----


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_paused_sandbox_outlives_the_service(own, end):
    service, caller = own
    sandbox, doomed = make(caller), make(caller)
    life = Life(sandbox)
    sandbox.pause()
    doomed.pause()
    getattr(service, end)()
    service.start()
    assert sandbox.refresh()["status"] == "paused"
    sandbox.resume()
    life.goes_on(sandbox)
    assert doomed.destroy().status == 200
    until(lambda: doomed.refresh()["status"] == "destroyed", "the paused sandbox to be gone")


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("milliseconds", [0, 2, 5, 10, 20, 40, 80])
def test_a_service_that_is_killed_in_the_middle(own, verb, milliseconds):
    """Wherever it dies: the sandbox runs or is paused afterwards, and has lost nothing."""
    service, caller = own
    sandbox = make(caller)
    life = Life(sandbox)
    if verb == "resume":
        sandbox.pause()

    def change():
        try:
            getattr(sandbox, verb)(wait=False)
        except Exception:
            pass  # The answer may be lost with the service.

    thread = threading.Thread(target=change)
    thread.start()
    # The moment of the kill is what the story is about.
    time.sleep(milliseconds / 1000)
    service.kill()
    thread.join()
    service.start()
    until(lambda: sandbox.refresh()["status"] in ("running", "paused"), "the sandbox to settle", 60)
    sandbox.resume()
    life.goes_on(sandbox)
