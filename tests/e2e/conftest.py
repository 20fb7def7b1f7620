"""One service for all stories; each story has the sandboxes that it needs."""

import itertools
import signal

import pytest

from harness.command import CommandLine
from harness.contract import Contract
from harness.service import Service
from harness.wait import until
from harness.wire import Sandbox, Wire

SHAPE = "s-1vcpu-256mb"
IMAGE = "debian:13"

_numbers = itertools.count(1)


def make(caller, **fields):
    """A sandbox of this caller's."""
    return Sandbox(caller, caller.post("/v1/sandboxes", {"shape": SHAPE, "rootfs": IMAGE, **fields}).data)


@pytest.fixture(scope="session")
def contract():
    """The OpenAPI document, and what was seen of it."""
    return Contract()


@pytest.fixture(scope="session")
def service():
    """A running service. When the last story is told, nothing may be left of any of them."""
    service = Service()
    service.start()
    try:
        yield service
        account = Wire(service.url, service.key)
        for view in account.get("/v1/sandboxes?limit=500").data["data"]:
            account.delete(f"/v1/sandboxes/{view['id']}")
        until(lambda: account.get("/v1/sandboxes").data["pagination"]["total"] == 0, "every sandbox to be gone", 60)
        audit = service.audit()
        assert audit.returncode == 0, f"the audit found something:\n{audit.stdout}{audit.stderr}"
        assert service.stop() == 0, f"the service did not end well:\n{service.tail()}"
    finally:
        service.remove()


@pytest.fixture(scope="session")
def account(service, contract):
    """A caller with the key that the service made at its first start."""
    return Wire(service.url, service.key, contract)


@pytest.fixture(scope="session")
def nobody(account):
    """A caller without a key."""
    return account.with_key(None)


@pytest.fixture(scope="session")
def stranger(service, account):
    """A caller with the key of another account."""
    return account.with_key(service.new_account())


@pytest.fixture(scope="session")
def hutch(service):
    """The command line with the account's key."""
    return CommandLine(service.url, service.key)


@pytest.fixture
def create(account):
    """Creates sandboxes that do not outlive the story."""
    made = []

    def create(**fields):
        request = {"shape": SHAPE, "rootfs": IMAGE, **fields}
        sandbox = Sandbox(account, account.post("/v1/sandboxes", request).data)
        made.append(sandbox)
        return sandbox

    yield create
    for sandbox in made:
        sandbox.destroy()


@pytest.fixture
def own():
    """A service that this story may kill, and a caller of it."""
    service = Service()
    service.start()
    yield service, Wire(service.url, service.key)
    if not service.running:
        service.start()
    caller = Wire(service.url, service.key)
    for view in caller.get("/v1/sandboxes?limit=500").data["data"]:
        caller.delete(f"/v1/sandboxes/{view['id']}")
    until(lambda: caller.get("/v1/sandboxes").data["pagination"]["total"] == 0, "every sandbox to be gone", 60)
    audit = service.audit()
    service.stop()
    tail = service.tail()
    service.remove()
    assert audit.returncode == 0, f"the audit found something:\n{audit.stdout}{audit.stderr}\n{tail}"


@pytest.fixture(scope="module")
def sandbox(account):
    """A sandbox that the stories of one file share."""
    sandbox = Sandbox(account, account.post("/v1/sandboxes", {"shape": SHAPE, "rootfs": IMAGE}).data)
    yield sandbox
    sandbox.destroy()


@pytest.fixture
def sandbox_name():
    """A name that no other story uses."""
    return f"story-{next(_numbers)}"


def pytest_configure():
    """Who is asked to end, ends well: fixtures take away what they made."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """What looks back on all other stories comes last, and only when all were told."""
    last = [item for item in items if item.get_closest_marker("looks_back")]
    whole = not config.option.keyword and not config.option.markexpr and all("::" not in name for name in config.args)
    others = [item for item in items if item not in last]
    items[:] = others + last
    if not whole or {item.path.parent.name for item in others} < {"stories", "python", "tours"}:
        for item in last:
            item.add_marker(pytest.mark.skip(reason="only some of the stories were asked for"))
