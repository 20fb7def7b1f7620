"""A service of the test's own: a random port, a folder of its own, nothing left behind."""

import hashlib
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

from .wait import until
from .wire import Wire

ROOT = Path(__file__).parents[3]
BINARY = Path(os.environ.get("HUTCH_BINARY", ROOT / "target" / "release" / "hutch"))
GUEST = Path(os.environ.get("HUTCH_GUEST", ROOT / "target" / "guest"))


class Service:
    """`hutch serve`, started and ended at will. The folder outlives the process, the object outlives both."""

    def __init__(self, data=None, port=None):
        self._own = data is None
        self.data = Path(data or tempfile.mkdtemp(prefix="hutch-e2e-"))
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = self.data.parent / f"{self.data.name}.log"
        self.process = None

    def start(self, deadline=30.0):
        """Starts it and returns the seconds until it was ready."""
        began = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--listen", f"127.0.0.1:{self.port}", "--data", self.data, "--guest", GUEST],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(self._answers, "the service to be ready", deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}; its log ends with:\n{self.tail()}") from None
        return time.monotonic() - began

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the service ended with {self.process.returncode}; its log:\n{self.tail()}")
        try:
            return Wire(self.url, timeout=10).get("/readyz").status == 200
        except OSError:
            return False

    def stop(self, deadline=30.0):
        """Asks it to end and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(deadline)

    def kill(self):
        """`kill -9`, as the power would."""
        self.process.kill()
        self.process.wait()

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def key(self):
        """The key of the account that the first start made."""
        return (self.data / "api-key").read_text().strip()

    def new_account(self):
        """Another account, put into the store as the service itself would; returns its key."""
        name, key = secrets.token_hex(13), f"skp_{secrets.token_hex(32)}"
        now = int(time.time() * 1000)
        digest = hashlib.sha256(key.encode()).digest()
        store = sqlite3.connect(self.data / "hutch.db", timeout=30)
        with store:
            store.execute("INSERT INTO accounts (id, name, created_at) VALUES (?, 'stranger', ?)", (f"acc-{name}", now))
            store.execute(
                "INSERT INTO api_keys (id, account, name, hint, digest, created_at) VALUES (?, ?, 'only', ?, ?, ?)",
                (f"key-{name}", f"acc-{name}", key[:12], digest, now),
            )
        store.close()
        return key

    def tail(self, lines=40):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def resident(self):
        """Bytes of memory that the process has resident now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the process shows no memory")

    def audit(self):
        """`hutch audit` beside the service: its exit code and what it printed."""
        return subprocess.run(
            [BINARY, "audit", "--data", self.data, "--json"], capture_output=True, text=True, timeout=60
        )

    def remove(self):
        """Takes the folder away."""
        if self.running:
            self.kill()
        if self._own:
            shutil.rmtree(self.data, ignore_errors=True)
            self.log.unlink(missing_ok=True)


def free_port():
    """A port that nobody listens on now. It is asked for, not chosen, so two runs at once do not meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
