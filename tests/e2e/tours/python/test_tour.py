"""The official Python client, unmodified, against this service: every call it offers.

`WORKS` are the calls that must give right answers. `NOT_YET` are calls of a surface that this service does not have:
each must fail with an error of the client's own, never with a hang, a crash or a false success. When one of them
begins to work, its test says so: move it up.
"""

import dataclasses
import io
import typing
from datetime import datetime, timezone

import createos
import httpx
import pytest
from createos import (
    APIError,
    AttachDiskOptions,
    Client,
    CommandError,
    ComputerButtonRequest,
    ComputerClickRequest,
    ComputerCreateScreenRequest,
    ComputerDragRequest,
    ComputerLaunchRequest,
    ComputerOpenRequest,
    ComputerPoint,
    ComputerScreenID,
    ComputerScrollRequest,
    ComputerTypeRequest,
    ComputerWindowMoveRequest,
    ComputerWindowResizeRequest,
    CreateSandboxRequest,
    DetachDiskOptions,
    DiskCreateRequest,
    DiskCredentials,
    ExecOptions,
    ExecStreamEventType,
    ForkSandboxRequest,
    ListSandboxesOptions,
    ManagedProcessCreateRequest,
    ManagedProcessSignal,
    NetworkCreateRequest,
    OperationTimeout,
    PTYSize,
    RequestOptions,
    RetryOptions,
    RunCommandRequest,
    SandboxStatus,
    TemplateCreateRequest,
    WaitOptions,
)
from conftest import IMAGE, SHAPE

from harness.wait import until

from . import surface


class Tour:
    """A client, and sandboxes for it."""

    def __init__(self, service):
        self.service = service
        self.client = Client(service.key, base_url=service.url)
        self.sandbox = self.create()

    def create(self, **fields):
        return self.client.create_sandbox(CreateSandboxRequest(shape=SHAPE, rootfs=IMAGE, **fields))

    def run(self, *command, **fields):
        request = RunCommandRequest(command=command[0], arguments=list(command[1:]), **fields)
        return typed(self.sandbox.run_command(request)).result

    def end(self):
        self.sandbox.destroy()
        self.client.close()


@pytest.fixture(scope="module")
def tour(service):
    tour = Tour(service)
    yield tour
    tour.end()


def typed(value):
    """The value, if each field of it has the type that the client declares: the client itself does not look."""
    hints = typing.get_type_hints(type(value))
    for field in dataclasses.fields(value):
        found, declared = getattr(value, field.name), hints[field.name]
        assert fits(found, declared), f"{type(value).__name__}.{field.name} is {found!r}, declared {declared}"
        if dataclasses.is_dataclass(found):
            typed(found)
        for item in found if isinstance(found, list) else []:
            if dataclasses.is_dataclass(item):
                typed(item)
    return value


def fits(value, declared):
    arguments = typing.get_args(declared)
    origin = typing.get_origin(declared)
    if origin is list:
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if arguments:
        return any(fits(value, choice) for choice in arguments)
    if declared is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if declared is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return declared is typing.Any or isinstance(value, declared)


# ---- what works ----

WORKS = {}


def works(*names):
    """Declares what a function shows."""

    def declare(function):
        for name in names:
            assert name not in WORKS, name
            WORKS[name] = function
        return function

    return declare


@works("Client.health", "Client.healthz")
def health(tour):
    assert typed(tour.client.health()).up is True and tour.client.healthz().up is True


@works("Client.readiness", "Client.readyz")
def readiness(tour):
    assert typed(tour.client.readiness()).ready is True and tour.client.readyz().ready is True


@works("Client.base_url", "Client.close")
def base_url(tour):
    with Client("", base_url=tour.service.url + "/") as client:
        assert client.base_url == tour.service.url
        # These four need no key, and the client sends none.
        assert client.health().up and client.readiness().ready
        assert client.list_shapes() and client.list_root_file_systems().default
        with pytest.raises(createos.AuthenticationError):
            client.who_am_i()
    client.close()


@works("Client.who_am_i")
def who_am_i(tour):
    me = typed(tour.client.who_am_i())
    assert me.user_id and me.stats.running >= 1 and me.stats.total >= me.stats.running


@works("Client.list_shapes")
def list_shapes(tour):
    shapes = {shape.id: typed(shape) for shape in tour.client.list_shapes()}
    assert (shapes[SHAPE].vcpu, shapes[SHAPE].memory_mib) == (1, 256) and shapes[SHAPE].default_disk_mib > 0
    assert {"s-1vcpu-1gb", "s-2vcpu-2gb", "s-4vcpu-4gb"} <= shapes.keys()


@works("Client.list_root_file_systems")
def list_root_file_systems(tour):
    catalogue = typed(tour.client.list_root_file_systems())
    assert {IMAGE, "devbox:1"} <= set(catalogue.root_file_systems) and catalogue.default in catalogue.root_file_systems
    assert {entry.name for entry in catalogue.entries} == set(catalogue.root_file_systems)


@works("Client.list_hosts")
def list_hosts(tour):
    [host] = tour.client.list_hosts()
    assert typed(host).status == createos.HostStatus.ACTIVE and host.sandbox_count >= 1 and host.free_memory_mib > 0


@works("Client.create_sandbox")
def create_sandbox(tour):
    sandbox = tour.create(environment_variables={"A": "1"}, egress_rules=["*"], auto_pause_after_seconds=3600)
    data = typed(sandbox.data)
    assert data.status == SandboxStatus.RUNNING and data.id.startswith("sb-") and data.name
    assert (data.shape, data.rootfs, data.vcpu, data.memory_mib) == (SHAPE, IMAGE, 1, 256)
    assert data.spawn_milliseconds > 0 and data.disk_mib > 0
    assert typed(sandbox.refresh().data).auto_pause_after_seconds == 3600
    assert sandbox.data.environment_variables == ["A"]
    sandbox.destroy()
    for request, words in [
        (CreateSandboxRequest(shape="s-0vcpu"), ["shape", "choices"]),
        (CreateSandboxRequest(shape=SHAPE, rootfs="windows:95"), ["rootfs", IMAGE]),
        (CreateSandboxRequest(shape=SHAPE, rootfs=IMAGE, name=tour.sandbox.name), [tour.sandbox.name]),
    ]:
        with pytest.raises(APIError) as error:
            tour.client.create_sandbox(request)
        assert error.value.status_code in (400, 409) and error.value.request_id
        assert all(word in str(error.value) for word in words), error.value


@works("Client.get_sandbox")
def get_sandbox(tour):
    data = typed(tour.client.get_sandbox(tour.sandbox.id).data)
    assert data.id == tour.sandbox.id and data.status == SandboxStatus.RUNNING
    assert data.created_at.tzinfo and data.created_at <= data.running_at <= datetime.now(timezone.utc)
    with pytest.raises(APIError) as error:
        tour.client.get_sandbox("sb-01jzzzzzzzzzzzzzzzzzzzzzzz")
    assert (error.value.status_code, error.value.method) == (404, "GET")
    with pytest.raises(APIError) as error:
        Client("skp_wrong", base_url=tour.service.url).get_sandbox(tour.sandbox.id)
    assert error.value.status_code == 401


@works("Client.get_sandbox_by_ip")
def get_sandbox_by_ip(tour):
    if tour.sandbox.ip_address:
        assert tour.client.get_sandbox_by_ip(tour.sandbox.ip_address).id == tour.sandbox.id
    with pytest.raises(APIError) as error:
        tour.client.get_sandbox_by_ip("203.0.113.9")
    assert error.value.status_code == 404


@works("Client.list_sandboxes")
def list_sandboxes(tour):
    others = [tour.create() for _ in range(2)]
    for sandbox in tour.client.list_sandboxes():
        typed(sandbox.data)
    everything = [sandbox.id for sandbox in tour.client.list_sandboxes()]
    assert {tour.sandbox.id, *(other.id for other in others)} <= set(everything)
    assert len(tour.client.list_sandboxes(ListSandboxesOptions(limit=2))) == 2
    running = tour.client.list_sandboxes(ListSandboxesOptions(status=SandboxStatus.RUNNING))
    assert tour.sandbox.id in [sandbox.id for sandbox in running]
    assert tour.client.list_sandboxes(ListSandboxesOptions(status=SandboxStatus.PAUSED)) == []
    for other in others:
        other.destroy()


@works(
    "SandboxInstance.id",
    "SandboxInstance.name",
    "SandboxInstance.status",
    "SandboxInstance.ip_address",
    "SandboxInstance.data",
    "SandboxInstance.refresh",
)
def properties(tour):
    assert tour.sandbox.refresh() is tour.sandbox
    data = typed(tour.sandbox.data)
    assert (tour.sandbox.id, tour.sandbox.name, tour.sandbox.status) == (data.id, data.name, SandboxStatus.RUNNING)
    assert tour.sandbox.ip_address == (data.ip_address or "")


@works("SandboxInstance.run_command")
def run_command(tour):
    result = tour.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.standard_output, result.standard_error, result.exit_code) == ("out\n", "err\n", 3)
    assert tour.run("cat", standard_input="in ä🐇").standard_output == "in ä🐇"
    options = ExecOptions(standard_input="x", timeout=30)
    request = RunCommandRequest(command="wc", arguments=["-c"])
    assert tour.sandbox.run_command(request, options).result.standard_output == "1\n"
    assert tour.run("no-such-program").exit_code == 127
    response = tour.sandbox.run_command(RunCommandRequest(command="sleep", arguments=["0.05"]))
    assert response.execution_milliseconds >= 50
    sandbox = tour.create(environment_variables={"A": "1"})
    override = RunCommandRequest(command="sh", arguments=["-c", "echo $A"], environment_variables={"A": "2"})
    assert sandbox.run_command(override).result.standard_output == "2\n"
    sandbox.destroy()


@works("SandboxInstance.shell")
def shell(tour):
    assert tour.sandbox.shell("set -e; cd /tmp; echo $((1+1)) | tee a; cat a").result.standard_output == "2\n2\n"
    with pytest.raises(CommandError) as error:
        tour.sandbox.shell("echo why >&2; exit 4")
    assert error.value.response.result.exit_code == 4 and "why" in str(error.value)


@works(
    "SandboxInstance.stream_command",
    "CommandStream.receive",
    "CommandStream.recv",
    "CommandStream.decode",
    "CommandStream.close",
)
def stream_command(tour):
    script = "echo 1; until [ -e /tmp/next ]; do sleep 0.02; done; echo 2 >&2; exit 5"
    tour.run("rm", "-f", "/tmp/next")
    with tour.sandbox.stream_command(RunCommandRequest(command="sh", arguments=["-c", script])) as stream:
        first = stream.receive()
        assert (first.type, first.data) == (ExecStreamEventType.STDOUT, "1\n")
        tour.run("touch", "/tmp/next")
        rest = [stream.recv()]
        rest += list(stream)
    assert [event.data for event in rest if event.type == ExecStreamEventType.STDERR] == ["2\n"]
    assert rest[-1].type == ExecStreamEventType.EXIT and rest[-1].exit_code == 5
    # Closing the stream kills the command.
    stream = tour.sandbox.stream_command(RunCommandRequest(command="sleep", arguments=["7771"]))
    until(lambda: tour.run("pgrep", "-f", "[s]leep 7771").exit_code == 0, "the command to start")
    stream.close()
    until(lambda: tour.run("pgrep", "-f", "[s]leep 7771").exit_code == 1, "the command to be killed")


@works("SandboxInstance.set_ingress")
def set_ingress(tour):
    assert tour.sandbox.set_ingress(True).data.ingress_enabled is True
    assert tour.sandbox.refresh().data.ingress_enabled is True
    assert typed(tour.sandbox.set_ingress(False).data).ingress_enabled is False


@works("SandboxInstance.set_auto_pause")
def set_auto_pause(tour):
    assert tour.sandbox.set_auto_pause(120).data.auto_pause_after_seconds == 120
    assert tour.sandbox.refresh().data.auto_pause_after_seconds == 120
    assert tour.sandbox.set_auto_pause(None).data.auto_pause_after_seconds is None


@works("SandboxInstance.pause", "SandboxInstance.wait_until_paused", "SandboxInstance.resume")
def pause_and_resume(tour):
    sandbox = tour.create()
    try:
        sandbox.shell("echo kept >/root/file; (sleep 7773 >/dev/null 2>&1 &)")
        assert sandbox.pause() is sandbox and sandbox.status in (SandboxStatus.PAUSING, SandboxStatus.PAUSED)
        assert typed(sandbox.data).name, "the answer takes the place of all that the client knew"
        assert sandbox.wait_until_paused(WaitOptions(timeout=60)).status == SandboxStatus.PAUSED
        assert typed(sandbox.data).paused_at
        assert sandbox.pause().status == SandboxStatus.PAUSED, "repeating it is no error"
        run = lambda: sandbox.run_command(RunCommandRequest("true"))
        for call in (run, lambda: sandbox.files.download("/root/file")):
            with pytest.raises(APIError, match="paused") as refused:
                call()
            assert refused.value.status_code == 409
        assert sandbox.id in [one.id for one in tour.client.list_sandboxes(ListSandboxesOptions(status=SandboxStatus.PAUSED))]
        assert sandbox.resume() is sandbox and sandbox.status in (SandboxStatus.RESUMING, SandboxStatus.RUNNING)
        assert sandbox.wait_until_running(WaitOptions(timeout=60)).status == SandboxStatus.RUNNING
        assert typed(sandbox.data).last_resumed_at
        assert sandbox.shell("cat /root/file; pgrep -c sleep").result.standard_output == "kept\n1\n"
        with pytest.raises(OperationTimeout):
            sandbox.wait_until_paused(WaitOptions(timeout=0.01))
    finally:
        sandbox.destroy()


@works("SandboxInstance.fork")
def fork(tour):
    parent = tour.create(environment_variables={"A": "1"}, auto_pause_after_seconds=3600)
    made = [parent]
    try:
        parent.shell("echo kept >/root/file")
        parent.pause().wait_until_paused(WaitOptions(timeout=60))
        copy = parent.fork()
        made.append(copy)
        assert copy.id.startswith("sb-") and copy.id != parent.id
        assert typed(copy.data).forked_from == parent.id and copy.data.auto_pause_after_seconds == 3600
        copy.wait_until_running(WaitOptions(timeout=60))
        assert copy.shell("cat /root/file; echo $A").result.standard_output == "kept\n1\n"
        other = parent.fork(ForkSandboxRequest(start_paused=True, environment_variables={"B": "2"}))
        made.append(other)
        assert other.wait_until_paused(WaitOptions(timeout=60)).status == SandboxStatus.PAUSED
        other.resume().wait_until_running(WaitOptions(timeout=60))
        assert other.shell("echo $A$B").result.standard_output == "2\n"
        assert parent.refresh().status == SandboxStatus.PAUSED
    finally:
        for sandbox in made:
            sandbox.destroy()


@works("self_pause", "self_delete")
def signals_from_inside(tour):
    """The client's functions speak to the guest's own loopback, so the same requests are made there."""
    sandbox = tour.create()
    for action, state in (("pause", SandboxStatus.PAUSED), ("delete", SandboxStatus.DESTROYED)):
        try:
            url = f"http://127.0.0.1:1029/self/{action}?reason=tour"
            signal = f"curl -sS -o /dev/null -w '%{{http_code}}' -X POST '{url}'"
            assert sandbox.shell(signal).result.standard_output == "202"
        except (APIError, CommandError):
            pass  # What it asked for came before the answer.
        until(lambda: sandbox.refresh().status == state, f"the sandbox to be {state}")
        if state == SandboxStatus.PAUSED:
            sandbox.resume().wait_until_running(WaitOptions(timeout=60))


@works("SandboxInstance.wait_until_running")
def wait_until_running(tour):
    assert tour.sandbox.wait_until_running(WaitOptions(timeout=10)).status == SandboxStatus.RUNNING


@works("SandboxInstance.destroy", "SandboxInstance.wait_until_destroyed")
def destroy(tour):
    sandbox = tour.create()
    sandbox.destroy()
    assert sandbox.status in (SandboxStatus.DESTROYING, SandboxStatus.DESTROYED)
    assert sandbox.wait_until_destroyed(WaitOptions(timeout=60)).status == SandboxStatus.DESTROYED
    assert typed(sandbox.data).destroyed_at
    sandbox.destroy()
    with pytest.raises(APIError) as error:
        sandbox.run_command(RunCommandRequest(command="true"))
    assert error.value.status_code == 409
    with pytest.raises(RuntimeError, match="terminal state"):
        sandbox.wait_until_running(WaitOptions(timeout=10))


@works("SandboxInstance.wait_for_port")
def wait_for_port(tour):
    server = "(sleep 0.3; exec python3 -m http.server 8123 --bind 127.0.0.1) >/dev/null 2>&1 &"
    tour.sandbox.shell(server)
    tour.sandbox.wait_for_port(8123, timeout=30)
    with pytest.raises(OperationTimeout):
        tour.sandbox.wait_for_port(8124, timeout=1)
    tour.run("pkill", "-f", "http.server")


@works("SandboxInstance.with_access_token")
def with_access_token(tour):
    handle = tour.sandbox.with_access_token("skp_sb_unknown")
    with pytest.raises(APIError) as error:
        handle.refresh()
    assert error.value.status_code == 401


@works(
    "FilesService.upload",
    "FilesService.download",
    "BinaryStream.read",
    "BinaryStream.iter_bytes",
    "BinaryStream.headers",
    "BinaryStream.close",
)
def files(tour):
    content = bytes(range(256)) * 5000
    tour.sandbox.files.upload("/tmp/new folder/a+b ä.bin", content)
    with tour.sandbox.files.download("/tmp/new folder/a+b ä.bin") as stream:
        assert stream.headers["content-type"] == "application/octet-stream"
        assert stream.read() == content
    tour.sandbox.files.upload("/tmp/file", io.BytesIO(content))
    tour.sandbox.files.upload("/tmp/generated", (content[at : at + 1000] for at in range(0, len(content), 1000)))
    for path in ("/tmp/file", "/tmp/generated"):
        stream = tour.sandbox.files.download(path)
        assert b"".join(stream.iter_bytes(4096)) == content
        stream.close()
    tour.sandbox.files.upload("/tmp/empty", b"")
    assert tour.sandbox.files.download("/tmp/empty").read() == b""
    for path, status in (("/tmp/none", 404), ("relative", 400)):
        with pytest.raises(APIError) as error:
            tour.sandbox.files.download(path)
        assert error.value.status_code == status
    with pytest.raises(APIError) as error:
        tour.sandbox.files.upload("relative", b"x")
    assert error.value.status_code == 400


@pytest.mark.parametrize("name", sorted(WORKS))
def test_works(tour, name):
    WORKS[name](tour)


def test_a_large_file(tour):
    """More than any buffer, in pieces, within the client's own timeout."""
    size, piece = 200 << 20, bytes(range(256)) * 4096
    pieces = (piece for _ in range(size // len(piece)))
    tour.sandbox.files.upload("/root/large", pieces, RequestOptions(timeout=60))
    received = 0
    with tour.sandbox.files.download("/root/large") as stream:
        for part in stream.iter_bytes(1 << 20):
            received += len(part)
    assert received == size
    tour.run("rm", "/root/large")


def test_a_service_that_is_gone():
    client = Client("skp_x", base_url="http://127.0.0.1:9", retry=RetryOptions(max_retries=0))
    with pytest.raises(httpx.ConnectError):
        client.who_am_i()


# ---- what does not work yet ----

#: Calls, by name. Each is given the tour and must raise.
NOT_YET = {
    "SandboxInstance.resize": lambda tour: tour.sandbox.resize(1 << 20),
    "SandboxInstance.add_ssh_public_keys": lambda tour: tour.sandbox.add_ssh_public_keys(["ssh-ed25519 AAAA x"]),
    "SandboxInstance.egress": lambda tour: tour.sandbox.egress(),
    "SandboxInstance.set_egress": lambda tour: tour.sandbox.set_egress(["example.com"]),
    "SandboxInstance.bandwidth": lambda tour: tour.sandbox.bandwidth(),
    "SandboxInstance.recharge_bandwidth": lambda tour: tour.sandbox.recharge_bandwidth(1),
    "SandboxInstance.attach_network": lambda tour: tour.sandbox.attach_network("net"),
    "SandboxInstance.detach_network": lambda tour: tour.sandbox.detach_network("net"),
    "SandboxInstance.list_disks": lambda tour: tour.sandbox.list_disks(),
    "SandboxInstance.attach_disk": lambda tour: tour.sandbox.attach_disk(AttachDiskOptions("d", "/mnt")),
    "SandboxInstance.detach_disk": lambda tour: tour.sandbox.detach_disk(DetachDiskOptions("d", "/mnt")),
    "SandboxInstance.create_access_token": lambda tour: tour.sandbox.create_access_token(),
    "SandboxInstance.get_access_token": lambda tour: tour.sandbox.get_access_token(),
    "SandboxInstance.rotate_access_token": lambda tour: tour.sandbox.rotate_access_token(),
    "SandboxInstance.disable_access_token": lambda tour: tour.sandbox.disable_access_token(),
    "SandboxInstance.preview_url": lambda tour: tour.sandbox.preview_url(80),
    "TemplatesService.list": lambda tour: tour.client.templates.list(),
    "TemplatesService.create": lambda tour: tour.client.templates.create(TemplateCreateRequest("t", "FROM x")),
    "TemplatesService.get": lambda tour: tour.client.templates.get("t"),
    "TemplatesService.delete": lambda tour: tour.client.templates.delete("t"),
    "TemplatesService.logs": lambda tour: tour.client.templates.logs("t"),
    "TemplatesService.follow_logs": lambda tour: list(tour.client.templates.follow_logs("t")),
    "NetworksService.list": lambda tour: tour.client.networks.list(),
    "NetworksService.create": lambda tour: tour.client.networks.create(NetworkCreateRequest("n")),
    "NetworksService.get": lambda tour: tour.client.networks.get("n"),
    "NetworksService.delete": lambda tour: tour.client.networks.delete("n"),
    "DisksService.list": lambda tour: tour.client.disks.list(),
    "DisksService.create": lambda tour: tour.client.disks.create(DiskCreateRequest("d")),
    "DisksService.get": lambda tour: tour.client.disks.get("d"),
    "DisksService.delete": lambda tour: tour.client.disks.delete("d"),
    "DisksService.rotate_credentials": lambda tour: tour.client.disks.rotate_credentials("d", DiskCredentials()),
    "ProcessesService.create": lambda tour: tour.sandbox.processes.create(ManagedProcessCreateRequest("true")),
    "ProcessesService.list": lambda tour: tour.sandbox.processes.list(),
    "ProcessesService.get": lambda tour: tour.sandbox.processes.get("p"),
    "ProcessesService.connect": lambda tour: list(tour.sandbox.processes.connect("p")),
    "ProcessesService.input": lambda tour: tour.sandbox.processes.input("p", "x"),
    "ProcessesService.input_bytes": lambda tour: tour.sandbox.processes.input_bytes("p", b"x"),
    "ProcessesService.close_standard_input": lambda tour: tour.sandbox.processes.close_standard_input("p"),
    "ProcessesService.resize": lambda tour: tour.sandbox.processes.resize("p", PTYSize(24, 80)),
    "ProcessesService.signal": lambda tour: tour.sandbox.processes.signal("p", ManagedProcessSignal.TERMINATE),
    "ProcessesService.wait": lambda tour: tour.sandbox.processes.wait("p"),
    "ProcessesService.delete": lambda tour: tour.sandbox.processes.delete("p"),
    "ComputerService.screenshot": lambda tour: tour.sandbox.computer.screenshot(),
    "ComputerService.screen": lambda tour: tour.sandbox.computer.screen(),
    "ComputerService.cursor": lambda tour: tour.sandbox.computer.cursor(),
    "ComputerService.clipboard": lambda tour: tour.sandbox.computer.clipboard(),
    "ComputerService.set_clipboard": lambda tour: tour.sandbox.computer.set_clipboard("x"),
    "ComputerService.open": lambda tour: tour.sandbox.computer.open(ComputerOpenRequest("x")),
    "ComputerService.launch": lambda tour: tour.sandbox.computer.launch(ComputerLaunchRequest("x")),
    "MouseService.move": lambda tour: tour.sandbox.computer.mouse.move(ComputerPoint(1, 1)),
    "MouseService.click": lambda tour: tour.sandbox.computer.mouse.click(ComputerClickRequest()),
    "MouseService.scroll": lambda tour: tour.sandbox.computer.mouse.scroll(ComputerScrollRequest()),
    "MouseService.drag": lambda tour: tour.sandbox.computer.mouse.drag(ComputerDragRequest()),
    "MouseService.down": lambda tour: tour.sandbox.computer.mouse.down(ComputerButtonRequest()),
    "MouseService.up": lambda tour: tour.sandbox.computer.mouse.up(ComputerButtonRequest()),
    "KeyboardService.type": lambda tour: tour.sandbox.computer.keyboard.type(ComputerTypeRequest("x")),
    "KeyboardService.press": lambda tour: tour.sandbox.computer.keyboard.press(["a"]),
    "KeyboardService.down": lambda tour: tour.sandbox.computer.keyboard.down(["a"]),
    "KeyboardService.up": lambda tour: tour.sandbox.computer.keyboard.up(["a"]),
    "WindowsService.list": lambda tour: tour.sandbox.computer.windows.list(),
    "WindowsService.current": lambda tour: tour.sandbox.computer.windows.current(),
    "WindowsService.get": lambda tour: tour.sandbox.computer.windows.get("w"),
    "WindowsService.geometry": lambda tour: tour.sandbox.computer.windows.geometry("w"),
    "WindowsService.focus": lambda tour: tour.sandbox.computer.windows.focus("w"),
    "WindowsService.move": lambda tour: tour.sandbox.computer.windows.move("w", ComputerWindowMoveRequest(1, 1)),
    "WindowsService.resize": lambda tour: tour.sandbox.computer.windows.resize("w", ComputerWindowResizeRequest(9, 9)),
    "WindowsService.maximize": lambda tour: tour.sandbox.computer.windows.maximize("w"),
    "WindowsService.minimize": lambda tour: tour.sandbox.computer.windows.minimize("w"),
    "WindowsService.restore": lambda tour: tour.sandbox.computer.windows.restore("w"),
    "WindowsService.close": lambda tour: tour.sandbox.computer.windows.close("w"),
    "ScreensService.list": lambda tour: tour.sandbox.computer.screens.list(),
    "ScreensService.create": lambda tour: tour.sandbox.computer.screens.create(ComputerCreateScreenRequest(9, 9)),
    "ScreensService.get": lambda tour: tour.sandbox.computer.screens.get(ComputerScreenID.SCREEN_1),
    "ScreensService.connect": lambda tour: tour.sandbox.computer.screens.connect(ComputerScreenID.SCREEN_1),
    "ScreensService.resize": lambda tour: tour.sandbox.computer.screens.resize(
        ComputerScreenID.SCREEN_1, ComputerWindowResizeRequest(9, 9)
    ),
    "ScreensService.delete": lambda tour: tour.sandbox.computer.screens.delete(ComputerScreenID.SCREEN_1),
}

#: Errors that are not an answer of the service: the client sees by itself that it cannot be.
LOCAL = {
    "SandboxInstance.preview_url": ValueError,
}


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_not_yet(tour, name):
    expected = LOCAL.get(name, APIError)
    try:
        NOT_YET[name](tour)
    except expected as error:
        if expected is APIError:
            assert error.status_code in (404, 501), f"{error}: a call that is not there is 404 or 501"
            assert "HTTP" in str(error) and "request failed" not in str(error), "it says what is wrong"
            assert error.request_id
    else:
        pytest.fail(f"{name} begins to work: move it to WORKS, with a test of what it gives")
    assert tour.sandbox.refresh().status == SandboxStatus.RUNNING, "it changed nothing"


# ---- that nothing was missed ----


def test_every_call_is_in_one_of_the_tables():
    told = WORKS.keys() | NOT_YET.keys()
    assert not (WORKS.keys() & NOT_YET.keys())
    assert surface.calls() - told == set(), "the client has calls that this tour does not know"
    assert told - surface.calls() == set(), "the tour tells of calls that the client does not have"


def test_it_is_the_pinned_client():
    from importlib.metadata import version

    assert version("createos-sandbox") == createos.__version__ == "0.1.3"
