"""HTTP/1.1 as it is on the wire: nothing is retried, buffered or decoded behind the test's back."""

import http.client
import json
import os
import signal
import socket
from urllib.parse import quote_plus, urlsplit


class Answer:
    """A whole answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def data(self):
        """What a success carries."""
        assert 200 <= self.status < 300, self
        envelope = self.json
        assert envelope["status"] == "success", envelope
        return envelope["data"]

    @property
    def code(self):
        """The stable code of a failure."""
        envelope = self.json
        if envelope["status"] == "fail":
            return envelope["data"]["code"]
        assert envelope["status"] == "error", envelope
        return envelope.get("data", {}).get("code") or envelope.get("error_code")

    @property
    def message(self):
        """All that a failure says, in one text."""
        envelope = self.json
        data = envelope.get("data")
        texts = [envelope.get("message", "")]
        texts += [data] if isinstance(data, str) else [f"{key}: {value}" for key, value in (data or {}).items()]
        return "; ".join(text for text in texts if text)

    def __repr__(self):
        return f"<{self.status} {self.body[:500]!r}>"


class Stream:
    """An answer that is read while it comes. Leaving the `with` block drops the connection."""

    def __init__(self, connection, response, judge):
        self._connection, self._response, self._judge = connection, response, judge
        self.status, self.headers = response.status, response.headers
        self._rest = b""

    def frames(self):
        """The JSON objects of an NDJSON body, each as soon as its line is complete."""
        for line in self.lines():
            self._judge(line)
            yield json.loads(line)

    def lines(self):
        while True:
            head, newline, tail = self._rest.partition(b"\n")
            if newline:
                self._rest = tail
                yield head
                continue
            piece = self._response.read1(1 << 16)
            if not piece:
                assert not self._rest.strip(), f"the body ended inside of a line: {self._rest!r}"
                return
            self._rest += piece

    def read(self, size):
        """At most `size` bytes; empty at the end."""
        return self._response.read1(size)

    def close(self):
        """Drops the connection in the middle of whatever it does."""
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._response.close()
        self._connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Wire:
    """A caller with one key. Each answer is held against the contract."""

    def __init__(self, url, key=None, contract=None, timeout=120.0):
        parts = urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self.key, self.contract, self.timeout = key, contract, timeout

    def with_key(self, key):
        return Wire(f"http://{self.host}:{self.port}", key, self.contract, self.timeout)

    def connect(self):
        """A connection of its own."""
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)

    def headers(self, extra=None, content=None):
        headers = {"Accept": "application/json"}
        if self.key is not None:
            headers["X-Api-Key"] = self.key
        if content is not None:
            headers["Content-Type"] = content
        return headers | (extra or {})

    def request(self, method, path, body=None, *, raw=None, headers=None, content=None, connection=None):
        """One request, one answer. `body` is sent as JSON, `raw` as it is."""
        stream = self.open(method, path, body, raw=raw, headers=headers, content=content, connection=connection)
        data = stream._response.read()
        if connection is None:
            stream._connection.close()
        answer = Answer(stream.status, stream.headers, data)
        if self.contract is not None:
            self.contract.check(method, path, answer.status, answer.headers.get("Content-Type"), data)
        return answer

    def open(self, method, path, body=None, *, raw=None, headers=None, content=None, connection=None):
        """Sends a request and returns as soon as the answer's headers are there."""
        if body is not None:
            raw, content = json.dumps(body).encode(), content or "application/json"
        connection = connection or self.connect()
        connection.request(method, path, body=raw, headers=self.headers(headers, content))
        response = connection.getresponse()

        def judge(line):
            if self.contract is not None:
                media = response.headers.get("Content-Type")
                self.contract.check(method, path, response.status, media, line)

        return Stream(connection, response, judge)

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, body, **options)

    def put(self, path, raw, **options):
        return self.request("PUT", path, raw=raw, content="application/octet-stream", **options)

    def patch(self, path, body, **options):
        return self.request("PATCH", path, body, **options)

    def delete(self, path, **options):
        return self.request("DELETE", path, **options)


class Sandbox:
    """A sandbox over the wire."""

    def __init__(self, wire, view):
        self.wire, self.view, self.id = wire, view, view["id"]
        self.path = f"/v1/sandboxes/{self.id}"

    def execute(self, cmd, *args, **fields):
        """The answer to a buffered exec."""
        return self.wire.post(f"{self.path}/exec", {"cmd": cmd, "args": list(args), **fields})

    def run(self, cmd, *args, **fields):
        """The result of a buffered exec that was accepted."""
        return self.execute(cmd, *args, **fields).data["result"]

    def shell(self, script, **fields):
        return self.run("bash", "-c", script, **fields)

    def check(self, script, **fields):
        """What a script prints that must succeed."""
        result = self.shell(script, **fields)
        assert result["exit_code"] == 0 and "error" not in result, result
        return result["stdout"]

    def stream(self, cmd, *args, **fields):
        body = {"cmd": cmd, "args": list(args), "stream": True, **fields}
        return self.wire.open("POST", f"{self.path}/exec?stream=true", body)

    def file(self, path, suffix=""):
        return f"{self.path}/files{suffix}?path={quote_plus(path)}"

    def write(self, path, content, **options):
        return self.wire.put(self.file(path), content, **options)

    def read(self, path, **options):
        return self.wire.get(self.file(path), **options)

    def refresh(self):
        self.view = self.wire.get(self.path).data
        return self.view

    def destroy(self):
        return self.wire.delete(self.path)

    def pause(self, wait=True):
        """Pauses it; the answer. With `wait` it is paused then."""
        return self._change("pause", wait)

    def resume(self, wait=True):
        """Resumes it; the answer. With `wait` it runs then."""
        return self._change("resume", wait)

    def _change(self, verb, wait):
        answer = self.wire.post(f"{self.path}/{verb}{'?wait=true' if wait else ''}")
        if wait:
            self.view = answer.data
        return answer

    def fork(self, **fields):
        """The copies that a fork made: a list, whether or not it was asked for one."""
        data = self.wire.post(f"{self.path}/fork", fields).data
        return [Sandbox(self.wire, view) for view in data.get("sandboxes", [data])]

    def snapshot(self, **fields):
        """Takes a snapshot: its view."""
        return self.wire.post(f"{self.path}/snapshots", fields).data

    def restore(self, snapshot):
        """Puts it back to a snapshot."""
        self.view = self.wire.post(f"{self.path}/restore", {"snapshot": snapshot}).data
        return self.view

    def processes(self):
        """The host's processes that are this sandbox: its kernel first."""
        artefacts = self.wire.get("/v1/audit").data["artefacts"]
        own = [artefact for artefact in artefacts if artefact["kind"] == "process" and artefact.get("owner") == self.id]
        return sorted(int("".join(filter(str.isdigit, artefact["name"]))) for artefact in own)

    def kill_kernel(self):
        """`kill -9` of the guest's kernel, from outside."""
        os.kill(self.processes()[0], signal.SIGKILL)
