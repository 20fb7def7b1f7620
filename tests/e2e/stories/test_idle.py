"""A sandbox that pauses or ends by itself: because nobody needs it, or because it says so."""

import threading

import pytest

from harness.wait import until

SELF = "http://127.0.0.1:1029"


def is_in(sandbox, *states):
    return sandbox.refresh()["status"] in states


@pytest.mark.parametrize("way", ["http", "fifo"])
def test_a_sandbox_pauses_itself_and_is_itself_afterwards(create, way):
    sandbox = create()
    sandbox.check("echo kept >/root/file")
    if way == "http":
        script = f"curl -sS -X POST -o /dev/null -w '%{{http_code}}' '{SELF}/self/pause?reason=done+for+today'"
        # The answer comes before the pause, or the pause takes the command along: both are fine.
        answer = sandbox.execute("sh", "-c", script)
        if answer.status == 409:
            assert answer.code == "sandbox_paused"
        else:
            assert answer.data["result"]["stdout"] == "202"
    else:
        answer = sandbox.execute("sh", "-c", "echo park >/run/self")
        assert answer.status in (200, 409)
    until(lambda: is_in(sandbox, "paused"), "the sandbox to pause itself")
    if way == "http":
        assert "done for today" in sandbox.view["reason"]
    sandbox.resume()
    assert sandbox.check("cat /root/file") == "kept\n"
    # It can do so again.
    sandbox.execute("sh", "-c", f"curl -sS -X POST {SELF}/self/pause")
    until(lambda: is_in(sandbox, "paused"), "the sandbox to pause itself again")


@pytest.mark.parametrize("way", ["http", "fifo"])
def test_a_sandbox_ends_itself(create, way):
    sandbox = create()
    script = f"curl -sS -X POST {SELF}/self/delete" if way == "http" else "echo retire >/run/self"
    sandbox.execute("sh", "-c", script)
    until(lambda: is_in(sandbox, "destroyed"), "the sandbox to end itself")


@pytest.mark.parametrize(
    "request_line, status",
    [
        ("-X GET /self/pause", "405"),
        ("-X GET /self/delete", "405"),
        ("-X POST /self/nothing", "404"),
        ("-X POST /", "404"),
        ("-X POST /self/pause/more", "404"),
    ],
)
def test_what_is_asked_wrongly_of_oneself(sandbox, request_line, status):
    method, path = request_line.rsplit(" ", 1)
    assert sandbox.check(f"curl -sS {method} -o /dev/null -w '%{{http_code}}' {SELF}{path}") == status
    assert sandbox.refresh()["status"] == "running"


def test_nonsense_on_the_loopback_port_and_in_the_fifo_changes_nothing(sandbox):
    sandbox.check("head -c 100000 /dev/urandom >/dev/tcp/127.0.0.1/1029 || true")
    long = "$(head -c 60000 /dev/zero | tr '\\0' a)"
    sandbox.check(f"curl -sS -o /dev/null -X POST '{SELF}/self/nothing?reason='{long} || true")
    sandbox.check("head -c 100000 /dev/urandom >/run/self; echo sing >/run/self")
    assert sandbox.refresh()["status"] == "running" and sandbox.check("echo up") == "up\n"


@pytest.mark.timeout(400)
def test_idleness_ends_what_nobody_needs_and_nothing_else(create):
    """A minute is the shortest limit there is, so one story shows all cases side by side."""
    idle = create(auto_pause_after_seconds=60)
    doomed = create(auto_destroy_after_seconds=60)
    attached, spoken, busy = (create(auto_pause_after_seconds=60) for _ in range(3))
    unlimited = create()
    busy.check("python3 -c 'while True: pass' >/dev/null 2>&1 &")
    over = threading.Event()

    def speak():
        while not over.wait(5):
            spoken.check("true")

    speaker = threading.Thread(target=speak)
    speaker.start()
    try:
        with attached.stream("sleep", "900") as stream:
            until(lambda: is_in(idle, "paused"), "the idle one to pause", 150)
            until(lambda: is_in(doomed, "destroyed"), "the doomed one to end", 60)
            assert "idle" in idle.view["reason"]
            for sandbox in (attached, spoken, busy, unlimited):
                assert is_in(sandbox, "running"), sandbox.view
            stream.close()
    finally:
        over.set()
        speaker.join()
    # When what kept them is gone, the same holds for them.
    busy.check("pkill python3")
    until(lambda: is_in(attached, "paused"), "the one whose command ended to pause", 150)
    until(lambda: is_in(busy, "paused"), "the one whose work ended to pause", 60)
    idle.resume()
    assert idle.check("echo up") == "up\n", "what paused by itself comes back"


def test_a_limit_can_be_set_changed_and_taken_away(account, create, hutch):
    sandbox = create(auto_pause_after_seconds=600, auto_destroy_after_seconds=7200)
    view = sandbox.refresh()
    assert (view["auto_pause_after_seconds"], view["auto_destroy_after_seconds"]) == (600, 7200)
    change = lambda **fields: account.patch(sandbox.path, fields)
    assert change(auto_destroy_after_seconds=3600).data["auto_destroy_after_seconds"] == 3600
    assert "auto_destroy_after_seconds" not in change(disable_auto_destroy=True).data
    assert sandbox.refresh()["auto_pause_after_seconds"] == 600, "what is absent stays"
    for fields in (
        {"auto_destroy_after_seconds": 59},
        {"auto_destroy_after_seconds": 60, "disable_auto_destroy": True},
    ):
        answer = change(**fields)
        assert (answer.status, answer.code) == (400, "invalid_request") and "auto_destroy" in answer.message
    assert hutch.run("update", sandbox.id, "--auto-pause", "off", "--auto-destroy", "1d").returncode == 0
    view = sandbox.refresh()
    assert "auto_pause_after_seconds" not in view and view["auto_destroy_after_seconds"] == 86400
