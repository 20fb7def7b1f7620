"""Snapshots: moments that stay, whatever becomes of the sandbox."""

import json
import re

import pytest

from conftest import IMAGE, SHAPE
from harness.life import Life
from harness.service import Service
from harness.wait import until
from harness.wire import Sandbox, Wire


@pytest.fixture
def taken(account):
    """Snapshots that do not outlive the story."""
    ids = []
    yield ids
    for id in ids:
        account.delete(f"/v1/snapshots/{id}")


@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_snapshot_is_the_moment_at_which_it_was_taken(account, create, taken, sandbox_name, state):
    sandbox = create()
    life = Life(sandbox)
    sandbox.check("echo then >/root/file")
    if state == "paused":
        sandbox.pause()
    view = sandbox.snapshot(name=sandbox_name, description="before it changes", labels={"a": "b"})
    taken.append(view["id"])
    assert re.fullmatch(r"sn-[0-9a-hjkmnp-tv-z]{26}", view["id"])
    assert (view["status"], view["name"], view["sandbox"]) == ("ready", sandbox_name, sandbox.id)
    assert (view["shape"], view["rootfs"], view["mem_mib"]) == (SHAPE, IMAGE, 256) and view["size_bytes"] > 0
    assert (view["description"], view["labels"]) == ("before it changes", {"a": "b"})
    assert account.get(f"/v1/snapshots/{view['id']}").data == account.get(f"/v1/snapshots/{sandbox_name}").data == view
    assert sandbox.refresh()["status"] == state, "taking it changes nothing"
    if state == "paused":
        sandbox.resume()
    life.goes_on(sandbox)
    sandbox.check("echo now >/root/file")
    until(lambda: life.goes_on(sandbox)["count"] > life.first["count"] + 5, "the sandbox to go on")

    born = create(snapshot=sandbox_name, shape=SHAPE, rootfs=IMAGE)
    assert born.view["snapshot"] == view["id"] and born.view["name"] != sandbox.view["name"]
    assert born.check("cat /root/file") == "then\n"
    life.is_whole(there := life.ask(born))
    assert there["fresh"] != life.last["fresh"]
    assert born.check("hostname").strip() == born.view["name"]


def test_a_sandbox_is_born_as_a_snapshot_without_any_shape(account, create, taken):
    sandbox = create(envs={"A": "1"})
    taken.append(sandbox.snapshot()["id"])
    sandbox.destroy()
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")
    born = Sandbox(account, account.post("/v1/sandboxes", {"snapshot": taken[0]}).data)
    try:
        assert (born.view["shape"], born.view["rootfs"]) == (SHAPE, IMAGE)
        assert born.check("echo $A") == "1\n", "it has the environment of the moment"
    finally:
        born.destroy()


def test_a_sandbox_goes_back(create, taken):
    sandbox = create()
    life = Life(sandbox)
    sandbox.check("echo then >/root/file")
    taken.append(sandbox.snapshot()["id"])
    sandbox.check("echo now >/root/file; pkill -f [l]ife.py; touch /root/later")
    view = sandbox.restore(taken[0])
    assert (view["id"], view["status"], view["snapshot"]) == (sandbox.id, "running", taken[0])
    there = sandbox.check("cat /root/file; test -e /root/later || echo gone; hostname")
    assert there.split() == ["then", "gone", sandbox.view["name"]]
    life.is_whole(life.ask(sandbox))
    # Again, and from paused.
    sandbox.check("echo now >/root/file")
    sandbox.pause()
    assert sandbox.restore(taken[0])["status"] == "running"
    assert sandbox.check("cat /root/file") == "then\n"
    life.is_whole(life.ask(sandbox))


def test_snapshots_make_a_tree(account, hutch, create, taken, sandbox_name):
    sandbox = create()
    root = sandbox.snapshot(name=f"{sandbox_name}.root")
    sandbox.check("echo 1 >/root/file")
    left = sandbox.snapshot(name=f"{sandbox_name}.left")
    sandbox.restore(root["id"])
    right = sandbox.snapshot(name=f"{sandbox_name}.right")
    born = create(snapshot=left["id"])
    leaf = born.snapshot(name=f"{sandbox_name}.leaf")
    taken += [root["id"], left["id"], right["id"], leaf["id"]]
    assert "parent" not in root
    assert (left["parent"], right["parent"], leaf["parent"]) == (root["id"], root["id"], left["id"])

    listed = lambda query: [view["id"] for view in account.get(f"/v1/snapshots?{query}").data["data"]]
    assert listed(f"sandbox={sandbox.id}") == [right["id"], left["id"], root["id"]], "newest first"
    assert listed(f"sandbox={born.view['name']}") == [leaf["id"]]
    assert listed(f"name={sandbox_name}.left") == [left["id"]] and listed("name=none") == []
    assert listed(f"sandbox={sandbox.id}&limit=1&offset=1") == [left["id"]]

    drawn = hutch.run("snapshot", "ls").stdout.decode().splitlines()
    column = {line.split(" sn-")[0].strip(): line for line in drawn[1:]}
    for branch in (".root", "├─ .left", "│  └─ .leaf", "└─ .right"):
        assert branch.replace(".", f"{sandbox_name}.") in column, "\n".join(drawn)
    # When one in the middle goes, what came of it stays connected.
    assert account.delete(f"/v1/snapshots/{left['id']}").data == {"id": left["id"], "deleted": True}
    assert account.get(f"/v1/snapshots/{left['id']}").status == 404
    assert account.get(f"/v1/snapshots/{leaf['id']}").data.get("parent") == root["id"]


def test_what_came_from_a_snapshot_stays_when_it_is_deleted(account, create, taken):
    sandbox = create()
    life = Life(sandbox)
    snapshot = sandbox.snapshot()
    born = create(snapshot=snapshot["id"])
    born.pause()
    assert account.delete(f"/v1/snapshots/{snapshot['id']}").status == 200
    assert account.delete(f"/v1/snapshots/{snapshot['id']}").status == 404
    born.resume()
    life.is_whole(life.ask(born))
    born.pause()
    born.resume()
    life.is_whole(life.ask(born))
    answer = account.post("/v1/sandboxes", {"snapshot": snapshot["id"]})
    assert (answer.status, answer.code) == (404, "not_found"), answer


def test_what_is_asked_wrongly(account, stranger, create, taken, sandbox_name):
    sandbox = create()
    snapshot = sandbox.snapshot(name=sandbox_name)
    taken.append(snapshot["id"])
    answer = account.post(f"{sandbox.path}/snapshots", {"name": sandbox_name})
    assert (answer.status, answer.code) == (409, "name_taken") and sandbox_name in answer.message, answer
    for body in ({"name": "No Name"}, {"labels": {"": "x"}}, {"description": "x" * 256}):
        word = next(iter(body))
        answer = account.post(f"{sandbox.path}/snapshots", body)
        assert (answer.status, answer.code) == (400, "invalid_request") and word in answer.message, answer
    for body, word in [
        ({"snapshot": snapshot["id"], "shape": "s-1vcpu-512mb"}, "shape"),
        ({"snapshot": snapshot["id"], "rootfs": "devbox:1"}, "rootfs"),
        ({"snapshot": snapshot["id"], "disk_mib": 77}, "disk_mib"),
    ]:
        answer = account.post("/v1/sandboxes", body)
        assert answer.status in (400, 409) and word in answer.message, answer
    assert account.post("/v1/sandboxes", {"snapshot": "nothing"}).status == 404
    assert account.post(f"{sandbox.path}/restore", {"snapshot": "nothing"}).status == 404
    assert account.post(f"{sandbox.path}/restore", {}).status == 400
    # What belongs to another account is not there.
    assert stranger.get(f"/v1/snapshots/{snapshot['id']}").status == 404
    assert stranger.delete(f"/v1/snapshots/{snapshot['id']}").status == 404
    assert stranger.get("/v1/snapshots").data["pagination"]["total"] == 0
    assert stranger.post("/v1/sandboxes", {"snapshot": snapshot["id"]}).status == 404
    assert stranger.post(f"{sandbox.path}/snapshots", {}).status == 404
    # Another sandbox does not become it.
    other = create()
    answer = account.post(f"{other.path}/restore", {"snapshot": snapshot["id"]})
    assert (answer.status, answer.code) == (400, "invalid_request") and "another sandbox" in answer.message, answer
    assert other.check("echo up") == "up\n"


def test_a_damaged_snapshot_is_refused_and_says_so(service, account, create, taken):
    sandbox = create()
    snapshot = sandbox.snapshot()
    taken.append(snapshot["id"])
    state = service.data / "snapshots" / snapshot["id"] / "state"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 0xFF
    # The file may be shared with others by a hard link: the damage is put into one of its own.
    state.unlink()
    state.write_bytes(content)
    answer = account.post("/v1/sandboxes", {"snapshot": snapshot["id"]})
    assert (answer.status, answer.code) == (409, "snapshot_unusable"), answer
    answer = account.post(f"{sandbox.path}/restore", {"snapshot": snapshot["id"]})
    assert (answer.status, answer.code) == (409, "snapshot_unusable"), answer
    assert sandbox.check("echo up") == "up\n", "a refused restore leaves the sandbox as it is"


def test_snapshots_outlive_the_service():
    service = Service()
    service.start()
    try:
        caller = Wire(service.url, service.key)
        sandbox = Sandbox(caller, caller.post("/v1/sandboxes", {"shape": SHAPE, "rootfs": IMAGE}).data)
        life = Life(sandbox)
        snapshot = sandbox.snapshot(name="kept")
        sandbox.destroy()
        service.kill()
        service.start()
        assert caller.get("/v1/snapshots/kept").data["id"] == snapshot["id"]
        born = Sandbox(caller, caller.post("/v1/sandboxes", {"snapshot": "kept"}).data)
        life.is_whole(life.ask(born))
        assert caller.delete("/v1/snapshots/kept").status == 200
        born.destroy()
        until(lambda: caller.get("/v1/sandboxes").data["pagination"]["total"] == 0, "every sandbox to be gone", 60)
        audit = service.audit()
        assert audit.returncode == 0, audit.stdout + audit.stderr
        left = [entry.name for entry in (service.data / "snapshots").iterdir()]
        assert left == [], "a deleted snapshot that nothing needs leaves no file"
    finally:
        service.remove()


def test_the_command_line(account, hutch, create, taken, sandbox_name):
    sandbox = create()
    run = hutch.run("snapshot", "create", sandbox.id, "--name", sandbox_name)
    assert run.returncode == 0, run.stderr
    taken.append(run.stdout.decode().strip())
    sandbox.check("touch /root/later")
    ran = hutch.run("run", "--from-snapshot", sandbox_name, "--", "sh", "-c", "ls /root/later || echo clean")
    assert (ran.returncode, ran.stdout) == (0, b"clean\n"), ran.stderr
    created = hutch.run("create", "--snapshot", sandbox_name, "--json")
    view = json.loads(created.stdout)
    assert view["snapshot"] == taken[0] and hutch.run("rm", view["id"]).returncode == 0
    run = hutch.run("snapshot", "restore", sandbox.id, sandbox_name)
    assert run.returncode == 0 and f"as it was at {sandbox_name}".encode() in run.stderr
    assert sandbox.shell("test -e /root/later")["exit_code"] == 1
    assert hutch.run("snapshot", "rm", sandbox_name).returncode == 0
    gone = hutch.run("snapshot", "get", sandbox_name)
    assert gone.returncode == 1 and b"there is no snapshot" in gone.stderr
