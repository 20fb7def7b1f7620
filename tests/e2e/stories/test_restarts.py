"""The service goes and comes back; the sandboxes stay. Each story has a service of its own."""

import os
import signal
import threading
import time
from datetime import datetime

import pytest

from conftest import IMAGE, SHAPE, make
from harness.service import Service
from harness.wait import until
from harness.wire import Sandbox


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_sandboxes_outlive_the_service(own, end):
    service, caller = own
    sandbox = make(caller)
    sandbox.check("echo kept > /root/file; (sleep 3600 >/dev/null 2>&1 &)")
    getattr(service, end)()
    print(f"ready again after {service.start():.2f} s")
    assert sandbox.refresh()["status"] == "running"
    assert sandbox.check("cat /root/file; pgrep -c sleep") == "kept\n1\n"


def test_the_key_and_the_names_outlive_the_service(own):
    service, caller = own
    sandbox = make(caller, name="lasting", labels={"a": "b"}, envs={"X": "y"})
    key = service.key
    service.kill()
    service.start()
    assert service.key == key
    view = caller.get("/v1/sandboxes/lasting").data
    assert (view["id"], view["labels"]) == (sandbox.id, {"a": "b"})
    assert sandbox.check("echo $X") == "y\n"
    assert caller.post("/v1/sandboxes", {"shape": SHAPE, "rootfs": IMAGE, "name": "lasting"}).status == 409


def test_a_stream_that_the_service_took_along_is_no_success(own):
    service, caller = own
    sandbox = make(caller)
    with sandbox.stream("bash", "-c", "echo begun; sleep 6661") as stream:
        frames = stream.frames()
        assert next(frames)["stdout"] == "begun\n"
        service.kill()
        seen = []
        with pytest.raises(Exception):
            seen.extend(frames)
            raise ConnectionError("the body ended early") from None
        assert not any("exit_code" in frame for frame in seen)
    service.start()
    until(lambda: sandbox.shell("pgrep -f '[s]leep 6661'")["exit_code"] == 1, "the command to end with its stream")


def test_a_sandbox_that_died_meanwhile_is_failed(own):
    service, caller = own
    sandbox = make(caller)
    kernel = sandbox.processes()[0]
    service.kill()
    os.kill(kernel, signal.SIGKILL)
    service.start()
    until(lambda: sandbox.refresh()["status"] == "failed", "the loss to be noticed")
    assert sandbox.view["reason"]
    assert sandbox.destroy().status == 200


def test_a_kernel_that_is_killed_is_noticed(own):
    service, caller = own
    sandbox = make(caller)
    sandbox.kill_kernel()
    until(lambda: sandbox.refresh()["status"] == "failed", "the loss to be noticed")


def test_a_lifetime_that_ended_meanwhile_is_kept(own):
    service, caller = own
    sandbox = make(caller, lifetime_seconds=2)
    service.kill()
    # The wait is for the clock that the store compares with, not for an event.
    until(lambda: time.time() > sandbox_ends(sandbox), "the lifetime to be over")
    service.start()
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the overdue sandbox to be gone")


def sandbox_ends(sandbox):
    return datetime.fromisoformat(sandbox.view["expires_at"].replace("Z", "+00:00")).timestamp()


def test_a_create_that_was_cut_off_leaves_nothing(own):
    """The service dies in the middle of creates; what was begun is finished or taken back, never half there."""
    service, caller = own

    def attempt():
        try:
            make(caller)
        except Exception:
            pass

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    total = lambda: caller.get("/v1/sandboxes").data["pagination"]["total"]
    until(lambda: total() >= 2, "creates to be under way")
    service.kill()
    for thread in threads:
        thread.join()
    service.start()
    settled = lambda: all(
        view["status"] in ("running", "failed", "destroyed") for view in caller.get("/v1/sandboxes").data["data"]
    )
    until(settled, "every row to settle", 60)
    for view in caller.get("/v1/sandboxes?status=running").data["data"]:
        assert Sandbox(caller, view).check("echo up") == "up\n"


def test_two_services_do_not_share_a_folder(own):
    service, _ = own
    second = Service(data=service.data)
    with pytest.raises(AssertionError, match="the service ended with"):
        second.start()
