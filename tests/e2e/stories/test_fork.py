"""Copies of a sandbox: the same moment, another identity."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.life import Life
from harness.wait import until
from harness.wire import Sandbox

COPIES = 64

#: A process that lives before the fork and answers with a number that it draws when it is asked.
DRAWING = """
import socket, uuid
server = socket.create_server(("127.0.0.1", 7171))
while True:
    caller, _ = server.accept()
    with caller:
        caller.sendall(uuid.uuid4().hex.encode())
"""

#: What each line of the look shows.
WHAT = ("urandom", "uuid4 of a process from before", "machine-id", "boot id", "host name")
LOOK = (
    "head -c 1024 /dev/urandom | base64 -w0; echo; "
    "python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", 7171)).recv(99).decode())'; "
    "cat /etc/machine-id; cat /proc/sys/kernel/random/boot_id; hostname; date +%s.%N"
)


@pytest.fixture
def copies():
    """Copies that do not outlive the story."""
    made = []
    yield made
    for sandbox in made:
        sandbox.destroy()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("source", ["running", "paused"])
def test_no_two_copies_share_what_makes_one_unique(create, copies, source):
    parent = create()
    parent.write("/root/draw.py", DRAWING.encode())
    parent.check("setsid python3 /root/draw.py >/dev/null 2>&1 </dev/null &")
    parent.check("until ss -Htln | grep -q :7171; do sleep 0.01; done; echo mark >/root/file")
    if source == "paused":
        parent.pause()
    copies += parent.fork(count=COPIES)
    assert len(copies) == COPIES
    if source == "paused":
        assert parent.refresh()["status"] == "paused"
        parent.resume()

    def look(sandbox):
        before = time.time()
        lines = sandbox.check(LOOK).split("\n")
        assert before - 0.05 <= float(lines[5]) <= time.time() + 0.05, "its clock is right"
        assert sandbox.check("cat /root/file") == "mark\n"
        return lines[:5]

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(look, [parent, *copies]))
    for position, what in enumerate(WHAT):
        values = [lines[position] for lines in seen]
        if what == "boot id":
            # The kernel of a copy is the parent's, which booted once: a fresh one is welcome, not promised.
            continue
        assert len(set(values)) == COPIES + 1, f"{what} is shared: {values}"
    assert len({sandbox.view["name"] for sandbox in copies}) == COPIES
    for sandbox, lines in zip(copies, seen[1:]):
        assert sandbox.view["forked_from"] == parent.id and sandbox.view["status"] == "running"
        assert lines[4] == sandbox.view["name"], "a copy is called by its own name inside, too"


def test_a_copy_goes_on_from_where_the_sandbox_is_and_is_its_own(create, copies):
    parent = create()
    life = Life(parent)
    copies += parent.fork()
    copy = copies[0]
    life.is_whole(there := life.ask(copy))
    assert there["count"] >= life.first["count"]
    life.goes_on(parent)
    parent.check("echo parent >/root/which")
    copy.check("echo copy >/root/which")
    assert (parent.check("cat /root/which"), copy.check("cat /root/which")) == ("parent\n", "copy\n")
    parent.destroy()
    until(lambda: parent.refresh()["status"] == "destroyed", "the parent to be gone")
    life.is_whole(life.ask(copy))
    copies += copy.fork()
    assert copies[1].view["forked_from"] == copy.id
    life.is_whole(life.ask(copies[1]))
    copy.pause()
    copy.resume()
    life.is_whole(life.ask(copy))


def test_what_a_copy_takes_over_and_what_it_is_given(create, copies, sandbox_name):
    parent = create(envs={"A": "1", "B": "2"}, labels={"job": "7"}, auto_pause_after_seconds=3600, disk_mib=2048)
    parent.pause()
    copies += parent.fork()
    view = copies[0].refresh()
    for same in ("shape", "rootfs", "vcpu", "mem_mib", "disk_mib", "labels", "auto_pause_after_seconds", "envs"):
        assert view[same] == parent.view[same], same
    assert copies[0].check("echo $A$B") == "12\n"

    copies += parent.fork(
        name=sandbox_name, envs={"C": "3"}, labels={"job": "8"}, disable_auto_pause=True, ingress_enabled=True,
        auto_destroy_after_seconds=7200, lifetime_seconds=3600, ssh_pubkeys=["ssh-ed25519 AAAA x"], start_paused=True,
    )  # fmt: skip
    view = copies[1].refresh()
    assert (view["status"], view["name"], view["envs"], view["labels"]) == ("paused", sandbox_name, ["C"], {"job": "8"})
    assert "auto_pause_after_seconds" not in view and view["auto_destroy_after_seconds"] == 7200
    assert view["ingress_enabled"] is True and view["expires_at"] and view["ssh_pubkeys"] == ["ssh-ed25519 AAAA x"]
    assert copies[1].processes() == [], "it was left paused"
    copies[1].resume()
    assert copies[1].check("echo [$A] $C; hostname") == f"[] 3\n{sandbox_name}\n"
    parent.resume()
    assert parent.check("echo $A$B") == "12\n"


def test_a_count_makes_a_list_and_numbers_the_name(account, create, copies, sandbox_name):
    parent = create()
    made = parent.fork(count=3, name=sandbox_name, start_paused=True)
    copies += made
    assert [copy.view["name"] for copy in made] == [f"{sandbox_name}-{number}" for number in (1, 2, 3)]
    assert {copy.view["status"] for copy in made} == {"paused"}
    # All or none: one name that is taken takes the others back.
    made[2].wire.delete(made[0].path)
    until(lambda: made[0].refresh()["status"] == "destroyed", "the first to be gone")
    answer = account.post(f"{parent.path}/fork", {"count": 3, "name": sandbox_name})
    assert (answer.status, answer.code) == (409, "name_taken"), answer
    living = lambda: [view["name"] for view in account.get("/v1/sandboxes?limit=500").data["data"]]
    until(lambda: f"{sandbox_name}-1" not in living(), "what was begun to be taken back")
    assert len(account.post(f"{parent.path}/fork", {"count": 1}).data["sandboxes"]) == 1
    copies += [Sandbox(account, view) for view in account.get("/v1/sandboxes?limit=500").data["data"]
               if view.get("forked_from") == parent.id]  # fmt: skip


@pytest.mark.parametrize(
    "body, word",
    [
        ({"count": 0}, "count"),
        ({"count": 101}, "count"),
        ({"count": "2"}, "count"),
        ({"name": "-"}, "name"),
        ({"envs": {"1A": "x"}}, "envs"),
        ({"bandwidth_quota_bytes": 5}, "bandwidth_quota_bytes"),
        ({"auto_pause_after_seconds": 1}, "auto_pause_after_seconds"),
        ({"auto_pause_after_seconds": 60, "disable_auto_pause": True}, "disable_auto_pause"),
    ],
)
def test_a_fork_that_is_asked_wrongly(sandbox, body, word):
    answer = sandbox.wire.post(f"{sandbox.path}/fork", body)
    assert (answer.status, answer.code) == (400, "invalid_request") and word in answer.message, answer


def test_what_cannot_be_copied(account, stranger, create):
    assert account.post("/v1/sandboxes/nobody/fork", {}).status == 404
    sandbox = create()
    assert stranger.post(f"{sandbox.path}/fork", {}).status == 404
    sandbox.destroy()
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")
    answer = account.post(f"{sandbox.path}/fork", {})
    assert (answer.status, answer.code) == (409, "wrong_state"), answer


def test_the_source_answers_while_it_is_copied(create, copies):
    """A stream on the source is not cut off by copies that are made of it."""
    parent = create()
    with parent.stream("bash", "-c", "for n in $(seq 1 100); do echo $n; sleep 0.02; done") as stream:
        frames = stream.frames()
        assert next(frames)["stdout"] == "1\n"
        copies += parent.fork(count=4)
        rest = [frame for frame in frames if "hb" not in frame]
    assert rest[-1] == {"exit_code": 0}, rest[-1]
    assert "".join(frame.get("stdout", "") for frame in rest).split() == [str(number) for number in range(2, 101)]


def test_the_command_line(account, hutch, create, copies, sandbox_name):
    parent = create()
    run = hutch.run("fork", parent.id, "--count", 3, "--name", sandbox_name)
    assert run.returncode == 0, run.stderr
    ids = run.stdout.decode().split()
    copies += [Sandbox(account, account.get(f"/v1/sandboxes/{id}").data) for id in ids]
    assert [copy.view["name"] for copy in copies] == [f"{sandbox_name}-{number}" for number in (1, 2, 3)]
    listed = hutch.run("ls").stdout.decode()
    assert "FORKED FROM" in listed
    assert parent.view["name"] in next(line for line in listed.splitlines() if ids[0] in line)
    assert hutch.run("fork", parent.id, "--count", 101).returncode == 2
