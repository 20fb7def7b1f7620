"""devbox:1, the default image: built when it is first asked for, and what is in it works."""

import pytest

from conftest import SHAPE
from harness.wait import until
from harness.wire import Sandbox

TOOLS = {
    "node": ["node -e 'console.log(6*7)'", "42"],
    "npm": ["npm --version", "11."],
    "bun": ["bun -e 'console.log(6*7)'", "42"],
    "pip in a venv": ["python3 -m venv /tmp/v && /tmp/v/bin/pip --version", "pip "],
    # The first build compiles the standard library.
    "go": ["mkdir /tmp/g && cd /tmp/g && echo 'package main; func main() { println(6*7) }' >a.go && go run a.go 2>&1", "42"],
    "rust": ["cd /tmp && echo 'fn main() { println!(\"{}\", 6*7) }' >a.rs && rustc a.rs && ./a", "42"],
    "cargo": ["cargo --version", "cargo 1."],
    "gcc": ["cd /tmp && echo 'int main() { return 42; }' >a.c && gcc a.c -o c; ./c; echo $?", "42"],
    "g++": ["cd /tmp && echo 'int main() { return 42; }' >a.cc && g++ a.cc -o cc; ./cc; echo $?", "42"],
    "sudo": ["su user -c 'sudo id -u'", "0"],
    "ssh": ["ssh -V 2>&1", "OpenSSH"],
    "sshd": ["mkdir -p /run/sshd && ssh-keygen -A >/dev/null && /usr/sbin/sshd -t && echo fine", "fine"],
    "git": ["git init -q /tmp/r && cd /tmp/r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline | wc -l", "1"],
}


@pytest.fixture(scope="module")
def devbox(account):
    if account.get("/v1/images/devbox:1").data["status"] != "ready":
        refused = account.post("/v1/sandboxes", {"shape": SHAPE})
        assert refused.status == 503 and "devbox:1" in refused.message, refused
        assert int(refused.headers["Retry-After"]) > 0
        until(lambda: account.get("/v1/images/devbox:1").data["status"] == "ready", "devbox:1 to be built", 900)
    patient = account.with_key(account.key)
    patient.timeout = 600
    sandbox = Sandbox(patient, account.post("/v1/sandboxes", {"shape": "s-1vcpu-1gb"}).data)
    assert sandbox.refresh()["rootfs"] == "devbox:1"
    yield sandbox
    sandbox.destroy()


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_works(devbox, tool):
    script, expected = TOOLS[tool]
    result = devbox.shell(script, timeout_ms=540_000)
    assert result["exit_code"] == 0 and expected in result["stdout"], result
