"""Guests that mean harm. Each story ends with the service answering and the neighbour working."""

from pathlib import Path

import pytest

from harness.wait import until

MIB = 1 << 20


@pytest.fixture
def neighbour(create):
    """Another sandbox. It must not notice anything."""
    return create()


def works(sandbox):
    return sandbox.check("echo $((6*7)) > /tmp/n && cat /tmp/n") == "42\n"


def test_removing_everything(create, neighbour):
    sandbox = create()
    result = sandbox.shell("rm -rf / --no-preserve-root", timeout_ms=60_000)
    assert "timed_out" not in result, result
    # Nothing is left to execute; that is told as it is, and the sandbox can still be destroyed.
    assert sandbox.execute("ls").status in (200, 500)
    assert works(neighbour)
    assert sandbox.destroy().status == 200
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")


def test_the_shared_image_is_not_written(create):
    first = create()
    first.check("echo changed > /etc/hostname; rm /bin/ls; echo x > /new")
    second = create()
    assert second.check("test -e /bin/ls; test ! -e /new; cat /etc/hostname") != "changed\n"


def test_a_fork_bomb(create, neighbour):
    sandbox = create()
    sandbox.shell(":(){ :|:& };:", timeout_ms=3_000)
    # The bomb goes on in the background; the host and the neighbour go on too.
    assert works(neighbour)
    answer = sandbox.execute("sh", "-c", "echo alive", timeout_ms=20_000)
    assert answer.status in (200, 500, 503), answer
    assert works(neighbour)
    assert sandbox.destroy().status == 200
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the bomb to be gone")


MEMORY_HOG = "x = []\nwhile True: x.append(bytearray(8 << 20))"


def test_a_memory_hog(create, neighbour):
    sandbox = create()
    result = sandbox.run("python3", "-c", MEMORY_HOG, timeout_ms=60_000)
    assert "timed_out" not in result, result
    assert result.get("oom") is True or "MemoryError" in result["stderr"], result
    assert result["exit_code"] != 0
    assert works(sandbox) and works(neighbour)


def test_a_hog_made_of_many(create, neighbour):
    sandbox = create()
    sandbox.shell("for i in $(seq 40); do python3 -c 'x=bytearray(32<<20); import time; time.sleep(3600)' & done; wait",
                  timeout_ms=8_000)
    assert works(neighbour)
    until(lambda: sandbox.execute("true").status == 200, "the hog's own sandbox to answer", 60)


def test_shared_memory_and_temporary_files_are_memory_too(create, neighbour):
    sandbox = create()
    result = sandbox.shell("head -c 2G /dev/zero > /dev/shm/fill", timeout_ms=60_000)
    assert "timed_out" not in result and result["exit_code"] != 0, result
    assert works(sandbox) and works(neighbour)


def test_a_bomb_and_a_hog_while_the_neighbour_works(create, neighbour):
    bomb, hog = create(), create()
    with bomb.stream("bash", "-c", ":(){ :|:& };: ; sleep 3600"), hog.stream("python3", "-c", MEMORY_HOG + "\n"):
        for number in range(20):
            assert neighbour.run("echo", str(number), timeout_ms=60_000)["stdout"] == f"{number}\n"


def test_a_disk_filler_meets_a_wall(service, create, neighbour):
    sandbox = create(disk_mib=256)
    result = sandbox.shell("head -c 10G /dev/zero > /root/fill; sync", timeout_ms=100_000)
    assert "No space left on device" in result["stderr"], result
    [disk] = [path for path in (service.data / "sandboxes" / sandbox.id).iterdir() if path.stat().st_size >= 128 * MIB]
    assert disk.stat().st_size <= 257 * MIB, "the file has its size from the beginning"
    assert disk.stat().st_blocks * 512 <= 257 * MIB, "and takes no more than that from the host"
    assert sandbox.check("rm /root/fill; echo again > /root/a; cat /root/a") == "again\n"
    assert works(neighbour)


def test_a_disk_full_of_small_files(create):
    sandbox = create(disk_mib=64)
    script = "mkdir /root/m; cd /root/m; i=0; while : > f$i; do i=$((i+1)); done 2>/dev/null; echo stopped"
    result = sandbox.shell(script, timeout_ms=100_000)
    assert result["stdout"] == "stopped\n", result
    assert sandbox.check("rm -r /root/m; echo x > /root/y; cat /root/y") == "x\n"


def test_one_that_never_ends(create):
    sandbox = create()
    result = sandbox.shell("while :; do :; done", timeout_ms=500)
    assert result["timed_out"] is True
    assert works(sandbox)


def test_one_that_ignores_every_signal(create):
    sandbox = create()
    result = sandbox.run("python3", "-c", IGNORES, timeout_ms=500)
    assert result["timed_out"] is True
    until(lambda: sandbox.shell("pgrep python3")["exit_code"] == 1, "it to be killed all the same")


IGNORES = """
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
while True: time.sleep(1)
"""


def test_a_guest_that_turns_itself_off(create):
    sandbox = create()
    power_off = "import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)"
    answer = sandbox.execute("python3", "-c", power_off, timeout_ms=30_000)
    assert (answer.status, answer.code) == (500, "sandbox_lost"), answer
    until(lambda: sandbox.refresh()["status"] == "failed", "the end to be noticed")
    assert "shut itself down" in sandbox.view["reason"]
    assert sandbox.destroy().status == 200


def test_a_guest_that_kills_all_it_can(create, neighbour):
    """`kill -9 -1` as root of the guest ends every process but init, which is the agent."""
    sandbox = create()
    sandbox.execute("sh", "-c", "kill -9 -1")
    until(lambda: sandbox.execute("true").status == 200, "the agent to answer")
    assert works(sandbox) and works(neighbour)


def test_a_guest_that_attacks_its_agent(create, neighbour):
    sandbox = create()
    result = sandbox.shell("kill -STOP 1; kill -KILL 1; kill -SEGV 1; echo > /proc/1/mem; echo over", timeout_ms=20_000)
    assert result["stdout"].endswith("over\n"), result
    assert works(sandbox) and works(neighbour)


def test_a_guest_that_writes_to_the_channel(create, neighbour):
    """The channel to the service belongs to the agent; garbage on it can end this sandbox and nothing else."""
    sandbox = create()
    sandbox.execute("sh", "-c", "head -c 100000 /dev/urandom > /dev/hostchan; echo $?", timeout_ms=20_000)
    assert works(neighbour)
    assert sandbox.execute("true").status in (200, 409, 500)


def test_nothing_of_the_host_is_seen(service, create):
    sandbox = create()
    seen = sandbox.check("cat /proc/mounts /proc/cmdline /proc/1/environ | tr '\\0' '\\n'; ls -la /proc/1/fd; id; env")
    for secret in (str(service.data), "HUTCH_API_KEY", service.key, str(Path.home() / ".cargo")):
        assert secret not in seen


def test_the_guest_has_no_network_but_its_own_loopback(create):
    sandbox = create()
    up = [line.split()[0] for line in sandbox.check("ip -brief link show up").splitlines()]
    assert up == ["lo"], "what is not up leads nowhere"
    assert sandbox.check("ip route show; ip -6 route show") == "", "there is no way out"
    assert sandbox.shell("echo > /dev/tcp/203.0.113.1/80")["exit_code"] != 0
    script = "import socket; s=socket.create_server(('127.0.0.1',0)); socket.create_connection(s.getsockname()); print('own')"
    assert sandbox.run("python3", "-c", script)["stdout"] == "own\n"
