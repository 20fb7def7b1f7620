"""A life that shows when anything of it is lost: memory, files, pipes, connections, a database, the order of time."""

import hashlib
import os
import socket
import sqlite3
import time
import uuid

MIB = 1 << 20
HOME = "/tmp/life"


def publish(name, text):
    with open(f"{HOME}/{name}.new", "w") as file:
        file.write(text + "\n")
    os.rename(f"{HOME}/{name}.new", f"{HOME}/{name}")


os.makedirs(HOME)
pattern = os.urandom(64 * MIB)
publish("digest", hashlib.sha256(pattern).hexdigest())
# Rewritten all the time, and checked before each time.
restless = bytearray(16 * MIB)
pages = len(restless) // 4096

listener = socket.create_server(("127.0.0.1", 7777))
client = socket.create_connection(("127.0.0.1", 7777))
peer, _ = listener.accept()
reader, writer = os.pipe()
database = sqlite3.connect("/root/life.db")
database.execute("create table counted (number integer primary key)")
log = open("/root/life.log", "w")

count = 0
expected = [0] * pages
before = time.monotonic()
while True:
    count += 1
    # What was sent last time has waited in the kernel since.
    waiting = (count - 1).to_bytes(8, "little")
    if count > 1:
        assert peer.recv(8) == waiting
        assert os.read(reader, 8) == waiting
    client.sendall(count.to_bytes(8, "little"))
    os.write(writer, count.to_bytes(8, "little"))
    for page in range(count * 64 % pages, count * 64 % pages + 64):
        assert restless[page % pages * 4096] == expected[page % pages]
        restless[page % pages * 4096] = expected[page % pages] = count % 256
    database.execute("insert into counted values (?)", (count,))
    database.commit()
    log.write(f"{count}\n")
    log.flush()
    now = time.monotonic()
    assert now >= before
    before = now
    if os.path.exists(f"{HOME}/wanted"):
        os.unlink(f"{HOME}/wanted")
        publish("found", hashlib.sha256(pattern).hexdigest())
    publish("now", f"{count} {os.getpid()} {uuid.uuid4()}")
    time.sleep(0.005)
