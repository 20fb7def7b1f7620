"""A sandbox from its creation to its end, and how it is found in between."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import IMAGE, SHAPE
from harness.wait import until
from harness.wire import Sandbox


def test_a_created_sandbox_runs_and_says_what_it_is(create, sandbox_name):
    view = create(name=sandbox_name, envs={"GREETING": "hello"}, labels={"purpose": "story"}).view
    assert re.fullmatch(r"sb-[0-9a-hjkmnp-tv-z]{26}", view["id"], re.IGNORECASE)
    assert view["status"] == "running" and view["name"] == sandbox_name
    assert (view["shape"], view["rootfs"], view["vcpu"], view["mem_mib"]) == (SHAPE, IMAGE, 1, 256)
    assert view["isolation"] == "user-kernel" and view["engine"] == "usermode"
    assert view["network"] == "loopback", "it must not pretend to have a network"
    assert view["spawn_ms"] > 0 and view["disk_mib"] > 0
    assert view["envs"] == ["GREETING"], "names of variables are shown, values are not"
    assert view["labels"] == {"purpose": "story"}
    assert view["bandwidth_quota_bytes"] == -1
    assert "ingress_url_template" not in view


def test_times_are_written_so_that_older_clients_can_read_them(create):
    view = create().view
    for name in ("created_at", "running_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}(\d{3})?)?Z", view[name]), view[name]


def test_the_kernel_is_the_sandboxs_own(create):
    sandbox = create()
    with open("/proc/sys/kernel/osrelease") as release:
        assert sandbox.check("uname -r").strip() != release.read().strip()
    assert sandbox.check("cat /proc/1/comm; hostname").split()[-1] == sandbox.view["name"]


def test_a_sandbox_is_found_by_id_and_by_name(account, create, sandbox_name):
    sandbox = create(name=sandbox_name)
    assert account.get(f"/v1/sandboxes/{sandbox.id}").data["id"] == sandbox.id
    assert account.get(f"/v1/sandboxes/{sandbox_name}").data["id"] == sandbox.id
    assert [view["id"] for view in account.get(f"/v1/sandboxes?name={sandbox_name}").data["data"]] == [sandbox.id]


def test_an_address_is_found_or_is_not(account, create):
    sandbox = create()
    if address := sandbox.view.get("ip"):
        assert account.get(f"/v1/sandboxes/by-ip/{address}").data["id"] == sandbox.id
    assert account.get("/v1/sandboxes/by-ip/203.0.113.9").status == 404


def test_lists_are_paged_and_filtered(account, create):
    made = [create(labels={"batch": "paged", "number": str(number)}) for number in range(3)]
    ids = [sandbox.id for sandbox in made]

    def listed(query):
        return [view["id"] for view in account.get(f"/v1/sandboxes?label=batch%3Dpaged&{query}").data["data"]]

    assert listed("") == ids[::-1], "newest first"
    assert listed("limit=2") + listed("limit=2&offset=2") == ids[::-1]
    assert listed("label=number%3D1") == [ids[1]]
    assert listed("status=running") == ids[::-1] and listed("status=paused") == []
    page = account.get("/v1/sandboxes?label=batch%3Dpaged&limit=100000").data["pagination"]
    assert (page["total"], page["limit"], page["count"]) == (3, 500, 3), "the limit is clamped, not refused"


def test_a_destroyed_sandbox_stays_readable(account, create):
    sandbox = create()
    answer = sandbox.destroy()
    assert answer.data["id"] == sandbox.id and answer.data["status"] in ("destroying", "destroyed")
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")
    assert sandbox.view["destroyed_at"]
    assert sandbox.destroy().data == {"id": sandbox.id, "status": "destroyed"}, "repeating it is no error"
    assert sandbox.id not in [view["id"] for view in account.get("/v1/sandboxes?limit=500").data["data"]]
    assert sandbox.id in [view["id"] for view in account.get("/v1/sandboxes?status=destroyed&limit=500").data["data"]]


def test_a_name_is_free_again_after_the_end(create, sandbox_name):
    first = create(name=sandbox_name)
    first.destroy()
    until(lambda: first.refresh()["status"] == "destroyed", "the first to be gone")
    assert create(name=sandbox_name).id != first.id


def test_ingress_and_idle_pause_are_remembered(account, create):
    sandbox = create()
    changed = account.patch(sandbox.path, {"auto_pause_after_seconds": 600}).data
    assert changed["auto_pause_after_seconds"] == 600 and changed["id"] == sandbox.id
    changed = account.patch(sandbox.path, {"disable_auto_pause": True}).data
    assert "auto_pause_after_seconds" not in changed
    changed = account.patch(sandbox.path, {"ingress_enabled": True}).data
    assert changed["ingress_enabled"] is True
    changed = account.patch(sandbox.path, {"labels": {"a": "b"}}).data
    assert changed["labels"] == {"a": "b"} and changed["ingress_enabled"] is True, "what is absent stays"


def test_a_repeated_create_answers_with_the_first_sandbox(account, create, sandbox_name):
    first = create(name=sandbox_name, idempotency_key=f"key-{sandbox_name}")
    request = {"shape": SHAPE, "rootfs": IMAGE, "name": sandbox_name}
    again = account.post("/v1/sandboxes", request, headers={"Idempotency-Key": f"key-{sandbox_name}"}).data
    assert again["id"] == first.id and again["replayed"] is True
    other = account.post(
        "/v1/sandboxes", request | {"shape": "s-1vcpu-512mb"}, headers={"Idempotency-Key": f"key-{sandbox_name}"}
    )
    assert (other.status, other.code) == (409, "idempotency_mismatch")


def test_a_lifetime_ends_a_sandbox(create):
    sandbox = create(lifetime_seconds=2)
    assert sandbox.view["expires_at"] > sandbox.view["created_at"]
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the lifetime to be over", 60)


def test_null_is_taken_for_empty(account):
    """Clients of several languages write `null` where they mean an empty list or map."""
    request = {"shape": SHAPE, "rootfs": IMAGE, "egress": None, "envs": None, "networks": None, "labels": None}
    sandbox = Sandbox(account, account.post("/v1/sandboxes", request).data)
    assert sandbox.check("echo up") == "up\n"
    sandbox.destroy()


def test_creates_at_once_all_succeed(create):
    with ThreadPoolExecutor(8) as pool:
        sandboxes = list(pool.map(lambda _: create(), range(8)))
        assert list(pool.map(lambda one: one.check("echo $((6*7))"), sandboxes)) == ["42\n"] * 8
    assert len({sandbox.id for sandbox in sandboxes}) == len({sandbox.view["name"] for sandbox in sandboxes}) == 8


@pytest.mark.parametrize("environment", [{"A": "", "_b1": "x y\n\"z'", "LONG": "v" * 4096}])
def test_environment_reaches_every_command(create, environment):
    sandbox = create(envs=environment)
    for name, value in environment.items():
        result = sandbox.run("python3", "-c", f"import os; print(repr(os.environ[{name!r}]))")
        assert result["stdout"] == repr(value) + "\n"
    assert sandbox.run("sh", "-c", "echo $A", env={"A": "over"})["stdout"] == "over\n"
