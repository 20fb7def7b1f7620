"""A program that lives in a guest and can tell whether it was interrupted: it holds one of everything."""

import json

PORT = 7070

#: Runs in the guest until it is killed. It answers each connection with what it finds of itself.
PROGRAM = r'''
import hashlib, json, os, socket, sqlite3, tempfile, threading, time, uuid

token = uuid.uuid4().hex
state = {"count": 0, "rows": 0}
pattern = os.urandom(1 << 20) * 8

reader, writer = os.pipe()
os.write(writer, b"kept in the pipe")
unlinked = tempfile.TemporaryFile()
unlinked.write(b"kept without a name")
unlinked.flush()
log = open("/root/log", "ab", buffering=0)

database = "/root/life.db"
sqlite3.connect(database).execute("CREATE TABLE life (number INTEGER PRIMARY KEY, token TEXT)")

def count():
    while True:
        state["count"] += 1
        log.write(b"%d\n" % state["count"])
        time.sleep(0.01)

def record():
    store = sqlite3.connect(database)
    while True:
        with store:
            store.execute("INSERT INTO life (token) VALUES (?)", (token,))
        state["rows"] += 1
        time.sleep(0.02)

def echo(listener):
    connection, _ = listener.accept()
    while piece := connection.recv(100):
        connection.sendall(piece)

listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=echo, args=(listener,), daemon=True).start()
held = socket.create_connection(listener.getsockname())
for work in (count, record):
    threading.Thread(target=work, daemon=True).start()

def look():
    os.write(writer, b"!")
    piped = os.read(reader, 100)
    os.write(writer, b"kept in the pipe")
    held.sendall(b"ping")
    unlinked.seek(0)
    rows = state["rows"]
    store = sqlite3.connect(database, timeout=30)
    return {
        "token": token, "pid": os.getpid(), "count": state["count"], "rows": rows,
        "stored": store.execute("SELECT count(*) FROM life").fetchone()[0],
        "sound": store.execute("PRAGMA integrity_check").fetchone()[0],
        "piped": piped.decode(), "echoed": held.recv(100).decode(), "unlinked": unlinked.read().decode(),
        "pattern": hashlib.sha256(pattern).hexdigest(), "log": os.path.getsize("/root/log"), "monotonic": time.monotonic(),
        "fresh": uuid.uuid4().hex,
    }

server = socket.create_server(("127.0.0.1", PORT))
while True:
    caller, _ = server.accept()
    with caller:
        caller.sendall(json.dumps(look()).encode())
'''

ASK = f"""
import socket, sys
connection = socket.create_connection(("127.0.0.1", {PORT}), timeout=60)
while piece := connection.recv(65536):
    sys.stdout.write(piece.decode())
"""


class Life:
    """The program, started in a sandbox."""

    #: Succeeds as soon as the program answers.
    READY = "for n in $(seq 1 3000); do python3 /root/ask.py >/dev/null 2>&1 && exit; sleep 0.01; done; exit 1"

    def __init__(self, sandbox):
        sandbox.write("/root/life.py", f"PORT = {PORT}\n{PROGRAM}".encode())
        sandbox.write("/root/ask.py", ASK.encode())
        sandbox.check("setsid python3 /root/life.py >/root/life.err 2>&1 </dev/null &")
        assert sandbox.shell(self.READY)["exit_code"] == 0, sandbox.shell("cat /root/life.err")
        self.first = self.last = self.ask(sandbox)

    def ask(self, sandbox):
        """What it finds of itself in this sandbox."""
        result = sandbox.run("python3", "/root/ask.py")
        assert result["exit_code"] == 0, (result, sandbox.shell("cat /root/life.err; pgrep -af life.py"))
        return json.loads(result["stdout"])

    def goes_on(self, sandbox):
        """Checks that the same process goes on and lost nothing since it was last asked."""
        now = self.ask(sandbox)
        self.is_whole(now)
        for grows in ("count", "rows", "stored", "log", "monotonic"):
            assert now[grows] >= self.last[grows], f"{grows} went back from {self.last[grows]} to {now[grows]}"
        self.last = now
        return now

    def is_whole(self, now):
        for same in ("token", "pid", "pattern"):
            assert now[same] == self.first[same], same
        assert now["piped"] == "kept in the pipe!" and now["echoed"] == "ping"
        assert now["unlinked"] == "kept without a name" and now["sound"] == "ok"
        assert now["stored"] >= now["rows"], "what was committed is there"
