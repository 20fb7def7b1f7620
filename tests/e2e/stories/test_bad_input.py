"""What the service says to those who ask wrongly: a fitting status, a stable code, the field and the way out."""

import http.client
import json

import pytest

from conftest import IMAGE, SHAPE
from harness.wait import until
from harness.wire import Sandbox

MIB = 1 << 20


def valid(**fields):
    return {"shape": SHAPE, "rootfs": IMAGE, **fields}


#: Body of a create, status, and words that the answer must have.
CREATES = {
    "unknown shape lists the choices": (valid(shape="s-99vcpu-9tb"), 400, ["shape", "choices: [", SHAPE]),
    "unknown image lists the choices": (valid(rootfs="windows:95"), 400, ["rootfs", IMAGE, "devbox:1"]),
    "shape is missing": ({"rootfs": IMAGE}, 400, ["shape"]),
    "shape is a number": (valid(shape=5), 400, ["shape", "string"]),
    "body is a list": ([], 400, ["object"]),
    "environment key begins with a digit": (valid(envs={"1A": "x"}), 400, ["envs", "1A"]),
    "environment key has a dash": (valid(envs={"A-B": "x"}), 400, ["envs", "A-B"]),
    "environment value is too long": (valid(envs={"A": "x" * 4097}), 400, ["envs", "4096"]),
    "too many variables": (valid(envs={f"A{number}": "x" for number in range(65)}), 400, ["envs", "64"]),
    "variables are too large together": (valid(envs={f"A{n}": "x" * 4000 for n in range(20)}), 400, ["envs"]),
    "name has a space": (valid(name="my box"), 400, ["name"]),
    "name begins with a dash": (valid(name="-box"), 400, ["name"]),
    "name is too long": (valid(name="a" * 64), 400, ["name", "63"]),
    "idle pause is too short": (valid(auto_pause_after_seconds=59), 400, ["auto_pause_after_seconds", "60"]),
    "idle pause is too long": (valid(auto_pause_after_seconds=86401), 400, ["auto_pause_after_seconds", "86400"]),
    "bandwidth quota at create": (valid(bandwidth_quota_bytes=1), 400, ["bandwidth_quota_bytes"]),
    "disk is negative": (valid(disk_mib=-1), 400, ["disk_mib"]),
    "disk is beyond reason": (valid(disk_mib=1 << 40), 400, ["disk_mib"]),
    "engine is unknown": (valid(engine="steam"), 400, ["engine", "usermode"]),
    "lifetime is zero": (valid(lifetime_seconds=0), 400, ["lifetime_seconds"]),
    "label has no key": (valid(labels={"": "x"}), 400, ["labels"]),
    "region is another": (valid(region="moon"), 400, ["region"]),
    "host is another": (valid(host_id="host-of-nobody"), 400, ["host_id"]),
}


@pytest.mark.parametrize("name", CREATES)
def test_create(account, name):
    body, status, words = CREATES[name]
    answer = account.post("/v1/sandboxes", body)
    assert answer.status == status, answer
    assert answer.json["status"] == "fail" and answer.code == "invalid_request"
    for word in words:
        assert word in answer.message, f"{word!r} is not in {answer.message!r}"


#: Raw bodies that are no JSON, and what the answer must point to.
BROKEN_JSON = {
    "a comma too many": (b'{"shape": "s-1vcpu-256mb",}', ["line 1", "column 27"]),
    "on its second line": (b'{"shape":\n  bad}', ["line 2"]),
    "an end too early": (b'{"shape": "s-1', ["line 1"]),
    "nothing at all": (b"", ["body"]),
    "bytes that are no text": (b'{"shape": "\xff\xfe"}', []),
    "depth without end": (b"[" * 100_000, []),
}


@pytest.mark.parametrize("name", BROKEN_JSON)
def test_broken_json_says_where(account, name):
    raw, words = BROKEN_JSON[name]
    answer = account.request("POST", "/v1/sandboxes", raw=raw, content="application/json")
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    for word in words:
        assert word in answer.message, f"{word!r} is not in {answer.message!r}"


def test_a_taken_name(account, create, sandbox_name):
    create(name=sandbox_name)
    answer = account.post("/v1/sandboxes", valid(name=sandbox_name))
    assert (answer.status, answer.code) == (409, "name_taken") and sandbox_name in answer.message


def test_a_body_that_is_too_large(account):
    answer = account.request("POST", "/v1/sandboxes", raw=b" " * (64 * MIB), content="application/json")
    assert (answer.status, answer.code) == (413, "too_large")


def test_an_announced_body_is_refused_before_it_comes(account, sandbox):
    """A file beyond the limit is refused by its announced length; nobody sends a terabyte to learn that."""
    connection = account.connect()
    connection.putrequest("PUT", sandbox.file("/tmp/large"))
    for name, value in account.headers().items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(1 << 50))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 413, response.read()
    assert json.loads(response.read())["data"]["code"] == "too_large"
    connection.close()


@pytest.mark.parametrize("key", ["", "skp_", "skp_" + "0" * 64, "Bearer x", "é".encode().decode("latin-1")])
def test_a_wrong_key(account, key):
    answer = account.with_key(key).get("/v1/whoami")
    assert (answer.status, answer.code) == (401, "unauthenticated"), answer


def test_the_key_of_another_header_does_not_count(account, nobody):
    answer = nobody.get("/v1/whoami", headers={"Authorization": f"Bearer {account.key}"})
    assert answer.status == 401


UNKNOWN = "sb-01jzzzzzzzzzzzzzzzzzzzzzzz"

#: Requests for a sandbox, by method and what follows its path.
ON_A_SANDBOX = [
    ("GET", "", None),
    ("PATCH", "", {"labels": {}}),
    ("DELETE", "", None),
    ("POST", "/exec", {"cmd": "true"}),
    ("POST", "/exec?stream=true", {"cmd": "true", "stream": True}),
    ("GET", "/files?path=/etc/hostname", None),
    ("PUT", "/files?path=/tmp/x", {}),
    ("DELETE", "/files?path=/tmp/x", None),
    ("GET", "/files/stat?path=/tmp", None),
    ("GET", "/files/list?path=/tmp", None),
    ("POST", "/files/move", {"from": "/tmp/a", "to": "/tmp/b"}),
    ("POST", "/files/mkdir", {"path": "/tmp/a"}),
    ("GET", "/files/archive?path=/tmp", None),
    ("PUT", "/files/archive?path=/tmp/a", {}),
]


@pytest.mark.parametrize("method, suffix, body", ON_A_SANDBOX)
def test_a_sandbox_that_is_not_there(account, method, suffix, body):
    answer = account.request(method, f"/v1/sandboxes/{UNKNOWN}{suffix}", body)
    assert (answer.status, answer.code) == (404, "not_found"), answer


@pytest.mark.parametrize("method, suffix, body", ON_A_SANDBOX)
def test_a_sandbox_of_somebody_else_is_not_there(stranger, sandbox, method, suffix, body):
    answer = stranger.request(method, f"{sandbox.path}{suffix}", body)
    assert (answer.status, answer.code) == (404, "not_found"), answer
    assert sandbox.refresh()["status"] == "running"


def test_a_stranger_sees_none_of_my_sandboxes(stranger, sandbox):
    assert stranger.get("/v1/sandboxes").data["pagination"]["total"] == 0
    assert stranger.get(f"/v1/sandboxes/{sandbox.view['name']}").status == 404
    assert stranger.get("/v1/whoami").data["stats"]["total"] == 0


@pytest.mark.parametrize("reference", ["..%2F..", "%00", "sb-1", "SB-" + "Z" * 300, "a%20b", "%F0%9F%90%87"])
def test_a_reference_that_is_none(account, reference):
    assert account.get(f"/v1/sandboxes/{reference}").status in (400, 404)


@pytest.fixture(scope="module")
def ended(account):
    """A sandbox that has been destroyed."""
    sandbox = Sandbox(account, account.post("/v1/sandboxes", valid()).data)
    sandbox.destroy()
    until(lambda: sandbox.refresh()["status"] == "destroyed", "the sandbox to be gone")
    return sandbox


@pytest.mark.parametrize("method, suffix, body", [row for row in ON_A_SANDBOX if row[1]])
def test_a_sandbox_that_has_ended(ended, method, suffix, body):
    answer = ended.wire.request(method, f"{ended.path}{suffix}", body)
    assert (answer.status, answer.code) == (409, "wrong_state"), answer
    assert "destroyed" in answer.message


#: Exec bodies, and words that the answer must have.
EXECS = {
    "no command": ({}, ["cmd"]),
    "an empty command": ({"cmd": ""}, ["cmd"]),
    "a command that is a list": ({"cmd": ["ls"]}, ["cmd"]),
    "a zero byte in an argument": ({"cmd": "echo", "args": ["a\0b"]}, ["args"]),
    "a relative directory": ({"cmd": "ls", "cwd": "tmp"}, ["cwd", "absolute"]),
    "a timeout of nothing": ({"cmd": "ls", "timeout_ms": 0}, ["timeout_ms"]),
    "a timeout beyond reason": ({"cmd": "ls", "timeout_ms": 1 << 60}, ["timeout_ms"]),
    "a bad variable": ({"cmd": "ls", "env": {"A=B": "x"}}, ["env", "A=B"]),
    "a variable that was not declared": ({"cmd": "ls", "env": {"NEW": "x"}}, ["env", "NEW", "declared"]),
    "two inputs": ({"cmd": "cat", "stdin": "a", "stdin_base64": "YQ=="}, ["stdin"]),
    "input that is no base64": ({"cmd": "cat", "stdin_base64": "!"}, ["stdin_base64"]),
    "an unknown encoding": ({"cmd": "cat", "encoding": "morse"}, ["encoding"]),
    "a negative limit": ({"cmd": "cat", "max_output_bytes": -1}, ["max_output_bytes"]),
}


@pytest.mark.parametrize("name", EXECS)
def test_exec(sandbox, name):
    body, words = EXECS[name]
    answer = sandbox.wire.post(f"{sandbox.path}/exec", body)
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    for word in words:
        assert word in answer.message, f"{word!r} is not in {answer.message!r}"


def test_a_user_or_a_directory_that_the_sandbox_does_not_have(sandbox):
    """Only the guest can know; the command could not be started, and that is what the answer says."""
    for fields in ({"user": "nobody-of-this-name"}, {"cwd": "/no/such/directory"}):
        answer = sandbox.execute("true", **fields)
        if answer.status == 200:
            assert answer.data["result"]["error"] and answer.data["result"]["exit_code"] != 0, answer
        else:
            assert answer.status == 400, answer


#: File requests: method, what follows `/files`, and words that the answer must have.
FILES = {
    "no path": ("GET", "", None, ["path"]),
    "an empty path": ("GET", "?path=", None, ["path"]),
    "a relative path": ("GET", "?path=etc/passwd", None, ["path", "absolute"]),
    "a relative path to write": ("PUT", "?path=etc/passwd", {}, ["path", "absolute"]),
    "a zero byte": ("GET", "?path=/etc/%00", None, ["path"]),
    "a path without end": ("GET", "?path=/" + "a" * 5000, None, ["path"]),
    "a mode that is none": ("PUT", "?path=/tmp/a&mode=rwx", {}, ["mode"]),
    "a relative directory": ("POST", "/mkdir", {"path": "a"}, ["path", "absolute"]),
    "a move from nowhere": ("POST", "/move", {"to": "/tmp/a"}, ["from"]),
    "a flag that is none": ("DELETE", "?path=/tmp/a&recursive=perhaps", None, ["recursive"]),
}


@pytest.mark.parametrize("name", FILES)
def test_files(sandbox, name):
    method, suffix, body, words = FILES[name]
    answer = sandbox.wire.request(method, f"{sandbox.path}/files{suffix}", body)
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    for word in words:
        assert word in answer.message, f"{word!r} is not in {answer.message!r}"


@pytest.mark.parametrize(
    "query", ["limit=many", "limit=-1", "offset=-1", "offset=1.5", "status=flying", "label=nosign"]
)
def test_a_list_that_is_asked_wrongly(account, query):
    answer = account.get(f"/v1/sandboxes?{query}")
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert query.split("=")[0] in answer.message


@pytest.mark.parametrize("change", [{"auto_pause_after_seconds": 1}, {"labels": {"": "x"}}, {"labels": 3}])
def test_a_change_that_is_none(sandbox, change):
    answer = sandbox.wire.patch(sandbox.path, change)
    assert (answer.status, answer.code) == (400, "invalid_request"), answer


def test_paths_and_methods_that_are_not_there(account):
    answer = account.get("/v1/unicorns")
    assert (answer.status, answer.code) == (404, "not_found")
    answer = account.request("PUT", "/v1/sandboxes", {})
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert "POST" in answer.headers["Allow"]


def test_a_request_that_is_not_http(account):
    connection = account.connect()
    connection.connect()
    connection.sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    response = b""
    while piece := connection.sock.recv(4096):
        response += piece
    assert not response or response.startswith(b"HTTP/1.1 400")
    assert account.get("/healthz").status == 200


def test_headers_without_end(account):
    connection = account.connect()
    try:
        connection.request("GET", "/healthz", headers={f"X-{number}": "v" * 1000 for number in range(2000)})
        assert connection.getresponse().status in (400, 431)
    except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
        pass
    assert account.get("/healthz").status == 200
