"""What was used is counted, once, and is never forgotten."""

import json
import time

import pytest

from conftest import IMAGE, SHAPE
from harness.service import Service
from harness.wait import until
from harness.wire import Sandbox, Wire

FIELDS = {
    "active_seconds", "paused_seconds", "cpu_seconds", "memory_mib_seconds", "disk_mib_seconds",
    "network_in_bytes", "network_out_bytes",
}  # fmt: skip


def used(sandbox, query=""):
    return sandbox.wire.get(f"{sandbox.path}/usage{query}").data


def test_time_counts_while_it_runs_and_not_while_it_is_paused(create):
    began = time.time()
    sandbox = create()
    until(lambda: used(sandbox)["active_seconds"] >= 1, "a second to be used")
    first = used(sandbox)
    assert first.keys() >= FIELDS | {"id", "name", "status"} and first["id"] == sandbox.id
    assert first["active_seconds"] <= time.time() - began
    assert first["memory_mib_seconds"] == pytest.approx(256 * first["active_seconds"], rel=0.02)
    sandbox.pause()
    paused = used(sandbox)
    until(lambda: used(sandbox)["paused_seconds"] >= 1, "a second of pause to be counted")
    later = used(sandbox)
    for still in ("active_seconds", "cpu_seconds", "memory_mib_seconds"):
        assert later[still] == paused[still], f"{still} must not grow while it is paused"
    assert later["disk_mib_seconds"] > paused["disk_mib_seconds"], "what is kept on disk counts"
    sandbox.resume()
    until(lambda: used(sandbox)["active_seconds"] > later["active_seconds"], "time to count again")
    assert used(sandbox)["active_seconds"] + later["paused_seconds"] <= time.time() - began + 0.5


def test_work_counts(create):
    sandbox = create()
    before = used(sandbox)["cpu_seconds"]
    sandbox.check("timeout 2 sh -c 'while :; do :; done' || true")
    until(lambda: used(sandbox)["cpu_seconds"] - before > 0.5, "the work to be counted")


def test_the_accounts_report_is_the_sum_of_its_sandboxes(account, stranger, create):
    one, two = create(), create()
    one.pause()
    two.destroy()
    until(lambda: two.refresh()["status"] == "destroyed", "one to be gone")
    report = account.get("/v1/usage?limit=500").data
    mine = {entry["id"]: entry for entry in report["sandboxes"]}
    assert mine[one.id]["status"] == "paused" and mine[two.id]["active_seconds"] > 0, "what is gone was used"
    assert len(report["sandboxes"]) == report["pagination"]["total"]
    for field in FIELDS:
        total = sum(entry[field] for entry in report["sandboxes"])
        assert report["total"][field] == pytest.approx(total, rel=0.01, abs=0.5), field
    assert one.id not in {entry["id"] for entry in stranger.get("/v1/usage").data["sandboxes"]}
    assert stranger.get(f"{one.path}/usage").status == 404
    only = account.get(f"/v1/usage?sandbox={one.id}").data
    assert [entry["id"] for entry in only["sandboxes"]] == [one.id]
    assert only["total"]["active_seconds"] == pytest.approx(mine[one.id]["active_seconds"], abs=0.01)


def test_a_span_of_time_has_what_lies_in_it(create):
    sandbox = create()
    until(lambda: used(sandbox)["active_seconds"] >= 1, "a second to be used")
    assert used(sandbox, "?to=2020-01-01")["active_seconds"] == 0
    assert used(sandbox, "?from=2100-01-01")["active_seconds"] == 0
    middle = sandbox.view["created_at"]
    assert used(sandbox, f"?to={middle}")["active_seconds"] == pytest.approx(0, abs=0.01)
    whole, since = used(sandbox), used(sandbox, f"?from={middle}")
    assert since["active_seconds"] == pytest.approx(whole["active_seconds"], abs=0.5)
    for query in ("from=yesterday", "from=2026-02-01&to=2026-01-01", "to=5"):
        answer = sandbox.wire.get(f"/v1/usage?{query}")
        assert (answer.status, answer.code) == (400, "invalid_request"), answer


def test_nothing_is_forgotten_or_counted_twice_when_the_service_is_killed():
    service = Service()
    service.start()
    try:
        caller = Wire(service.url, service.key)
        began = time.time()
        sandbox = Sandbox(caller, caller.post("/v1/sandboxes", {"shape": SHAPE, "rootfs": IMAGE}).data)
        until(lambda: used(sandbox)["active_seconds"] >= 1, "a second to be used")
        before = used(sandbox)
        service.kill()
        gone = time.time()
        service.start()
        after = used(sandbox)
        # It ran on without the service: that time was used, too.
        assert after["active_seconds"] >= before["active_seconds"]
        until(lambda: used(sandbox)["active_seconds"] >= before["active_seconds"] + (time.time() - gone) - 1, "it all")
        assert used(sandbox)["active_seconds"] <= time.time() - began
        sandbox.pause()
        paused = used(sandbox)
        service.kill()
        service.start()
        assert used(sandbox)["active_seconds"] == pytest.approx(paused["active_seconds"], abs=0.01)
        sandbox.destroy()
        until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")
        assert used(sandbox)["active_seconds"] == pytest.approx(paused["active_seconds"], abs=0.01)
    finally:
        service.remove()


def test_metrics_have_it(account, create):
    create()
    text = account.get("/metrics").body.decode()
    assert "usage" in text and "active_seconds" in text, text[-3000:]


def test_the_command_line(hutch, create, sandbox_name):
    sandbox = create(name=sandbox_name)
    listed = hutch.run("usage", "--last", "1h").stdout.decode().splitlines()
    assert listed[0].split()[:4] == ["NAME", "ID", "STATUS", "ACTIVE"] and listed[-1].startswith("TOTAL")
    assert any(line.startswith(f"{sandbox_name} ") and " running " in line for line in listed)
    assert json.loads(hutch.run("usage", sandbox_name, "--json").stdout)["id"] == sandbox.id
    assert hutch.run("usage", "--from", "soon").returncode == 2
