"""Files: row 21 of what other systems got wrong, and the rest of the interface."""

import hashlib
import io
import itertools
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, quote_plus

import pytest

from harness.wait import until

MIB = 1 << 20
KIB = 1 << 10

#: Sizes around every buffer that lies on the way.
SIZES = [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 262_143, 262_145, MIB, 5 * MIB + 3]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read(sandbox, size):
    content = os.urandom(size)
    assert sandbox.write("/tmp/round", content).data == {"bytes": size, "path": "/tmp/round"}
    answer = sandbox.read("/tmp/round")
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.body == content and int(answer.headers["Content-Length"]) == size
    assert sandbox.check("sha256sum < /tmp/round").split()[0] == hashlib.sha256(content).hexdigest()


#: Names that somebody's upload has once broken.
NAMES = {
    "space": "a b",
    "plus": "a+b",
    "percent": "100%",
    "percent code": "a%2Fb",
    "newline": "a\nb",
    "tab": "a\tb",
    "quotes": "it's \"so\"",
    "backslash": "a\\b",
    "leading dash": "-rf",
    "leading dot": ".hidden",
    "only dots": "...",
    "emoji": "🐇",
    "not composed": "e\u0301",
    "255 bytes": "n" * 255,
    "255 bytes of emoji": "🐇" * 63 + "nnn",
    "question mark": "a?b#c&d=e",
    "semicolon": "a;b,c:d",
    "star": "*",
    "tilde": "~",
    "dollar": "$HOME `id`",
    "control": "\x01\x1b[31m",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name(sandbox, name):
    path = f"/tmp/names/{NAMES[name]}"
    assert sandbox.write(path, name.encode()).data["path"] == path
    assert sandbox.read(path).body == name.encode()
    # Clients that write %20 for a space mean the same as those that write +.
    assert sandbox.wire.get(f"{sandbox.path}/files?path={quote(path, safe='')}").body == name.encode()
    entry = sandbox.wire.get(sandbox.file(path, "/stat")).data
    assert (entry["name"], entry["path"], entry["size"]) == (NAMES[name], path, len(name.encode()))
    listed = sandbox.wire.get(sandbox.file("/tmp/names", "/list")).data["data"]
    assert NAMES[name] in [entry["name"] for entry in listed]
    assert sandbox.wire.delete(sandbox.file(path)).data == {"path": path, "deleted": True}
    assert sandbox.read(path).status == 404


def test_a_name_that_is_too_long(sandbox):
    answer = sandbox.write("/tmp/" + "n" * 256, b"x")
    assert answer.status == 400 and "too long" in answer.message


def test_parents_are_made(sandbox):
    sandbox.write("/tmp/made/by/upload/file", b"x")
    assert sandbox.check("cat /tmp/made/by/upload/file") == "x"


def test_a_missing_file(sandbox):
    answer = sandbox.read("/tmp/no/such/file")
    assert (answer.status, answer.code) == (404, "not_found")
    assert answer.headers["Content-Type"].startswith("application/json") and "/tmp/no/such/file" in answer.message


#: Operations on something of the wrong kind: method, suffix, path, body.
WRONG_KINDS = {
    "read a directory": ("GET", "", "/tmp", None),
    "write over a directory": ("PUT", "", "/tmp", b"x"),
    "write below a file": ("PUT", "", "/etc/passwd/x", b"x"),
    "read below a file": ("GET", "", "/etc/passwd/x", None),
    "list a file": ("GET", "/list", "/etc/passwd", None),
    "remove a full directory": ("DELETE", "", "/etc", None),
}


@pytest.mark.parametrize("name", WRONG_KINDS)
def test_a_wrong_kind(sandbox, name):
    method, suffix, path, raw = WRONG_KINDS[name]
    answer = sandbox.wire.request(method, sandbox.file(path, suffix), raw=raw)
    assert answer.status in (400, 404, 409), answer
    assert path.split("/x")[0] in answer.message


def test_a_device_is_not_read_without_end(sandbox):
    answer = sandbox.read("/dev/zero")
    assert answer.status in (400, 409), answer


def test_a_pipe_does_not_block_for_ever(sandbox):
    sandbox.check("rm -f /tmp/fifo; mkfifo /tmp/fifo")
    assert sandbox.read("/tmp/fifo").status in (400, 409)


def test_symbolic_links_are_followed_to_content_and_shown_as_links(sandbox):
    sandbox.check("mkdir -p /tmp/l; cd /tmp/l; echo x > target; ln -sf target link; ln -sf loop loop; ln -sf none dead")
    assert sandbox.read("/tmp/l/link").body == b"x\n"
    entry = sandbox.wire.get(sandbox.file("/tmp/l/link", "/stat")).data
    assert (entry["kind"], entry["target"]) == ("symlink", "target")
    assert sandbox.read("/tmp/l/dead").status == 404
    assert sandbox.read("/tmp/l/loop").status in (400, 404, 409)
    assert sandbox.wire.delete(sandbox.file("/tmp/l/loop")).status == 200
    assert sandbox.wire.delete(sandbox.file("/tmp/l/link")).status == 200
    assert sandbox.check("cat /tmp/l/target") == "x\n", "the link goes, not what it points to"


def test_a_sparse_file_keeps_its_size(sandbox):
    sandbox.check("truncate -s 64M /tmp/sparse; printf end >> /tmp/sparse")
    body = sandbox.read("/tmp/sparse").body
    assert len(body) == 64 * MIB + 3 and body.endswith(b"\0end")


def test_an_executable_can_be_uploaded(sandbox):
    sandbox.wire.put(sandbox.file("/tmp/tool") + "&mode=755", b"#!/bin/sh\necho tool $1\n")
    assert sandbox.run("/tmp/tool", "x")["stdout"] == "tool x\n"
    sandbox.write("/tmp/tool", b"#!/bin/sh\necho again\n")
    assert sandbox.wire.get(sandbox.file("/tmp/tool", "/stat")).data["mode"] & 0o777 in (0o755, 0o644)


def test_chunked_uploads_without_a_length(sandbox):
    pieces = [os.urandom(size) for size in (1, 100_000, 7, 300_000)]
    connection = sandbox.wire.connect()
    headers = sandbox.wire.headers(content="application/octet-stream")
    connection.request("PUT", sandbox.file("/tmp/chunked"), iter(pieces), headers, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert sandbox.read("/tmp/chunked").body == b"".join(pieces)


def test_an_upload_that_breaks_off_leaves_the_old_file(sandbox):
    sandbox.write("/tmp/kept", b"old")
    connection = sandbox.wire.connect()
    connection.putrequest("PUT", sandbox.file("/tmp/kept"))
    for name, value in sandbox.wire.headers(content="application/octet-stream").items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(50 * MIB))
    connection.endheaders()
    connection.send(b"n" * MIB)
    connection.close()
    assert sandbox.read("/tmp/kept").body == b"old"
    listing = "ls -A /tmp | grep -c -i -e '^[.].*kept' -e 'kept.*part' -e 'kept.*tmp'"
    until(lambda: sandbox.shell(listing)["stdout"] == "0\n", "the half file to be gone")
    assert sandbox.read("/tmp/kept").body == b"old"


def test_a_download_that_breaks_off_harms_nobody(sandbox):
    sandbox.check("head -c 100M /dev/zero > /tmp/big")
    for _ in range(5):
        with sandbox.wire.open("GET", sandbox.file("/tmp/big")) as stream:
            assert stream.read(1000)
    assert sandbox.check("echo fine; rm /tmp/big") == "fine\n"


def test_500_mib_up_and_down_in_bounded_memory(service, sandbox):
    size, block = 500 * MIB, os.urandom(MIB)
    before, highest = service.resident(), 0
    digest = hashlib.sha256()

    def content():
        nonlocal highest
        for number in range(size // MIB):
            piece = number.to_bytes(8, "big") + block[8:]
            digest.update(piece)
            if number % 64 == 0:
                highest = max(highest, service.resident())
            yield piece

    connection = sandbox.wire.connect()
    headers = sandbox.wire.headers({"Content-Length": str(size)}, content="application/octet-stream")
    connection.request("PUT", sandbox.file("/root/large"), content(), headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    connection.close()
    received, back = hashlib.sha256(), 0
    with sandbox.wire.open("GET", sandbox.file("/root/large")) as stream:
        while piece := stream.read(MIB):
            received.update(piece)
            back += len(piece)
            if back % (64 * MIB) < MIB:
                highest = max(highest, service.resident())
    assert back == size and received.digest() == digest.digest()
    assert highest - before < 96 * MIB, f"the service grew by {(highest - before) // MIB} MiB"
    sandbox.check("rm /root/large")


def test_a_hundred_uploads_at_once_into_new_folders(sandbox):
    def upload(number):
        return sandbox.write(f"/tmp/many/{number % 10}/{number % 7}/{number}", str(number).encode()).status

    with ThreadPoolExecutor(100) as pool:
        assert set(pool.map(upload, range(100))) == {200}
    assert sandbox.check("find /tmp/many -type f | wc -l; cat $(find /tmp/many -type f) | wc -c").split() == ["100", "190"]


def test_uploads_to_one_path_at_once_leave_one_of_them(sandbox):
    def upload(number):
        return sandbox.write("/tmp/contended", bytes([number]) * 200_000).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(upload, range(8))) == {200}
    body = sandbox.read("/tmp/contended").body
    assert len(body) == 200_000 and len(set(body)) == 1


#: Range headers and what of a file of ten bytes must come.
RANGES = {
    "bytes=0-": (206, b"0123456789", "bytes 0-9/10"),
    "bytes=2-4": (206, b"234", "bytes 2-4/10"),
    "bytes=9-": (206, b"9", "bytes 9-9/10"),
    "bytes=5-500": (206, b"56789", "bytes 5-9/10"),
    "bytes=-3": (206, b"789", "bytes 7-9/10"),
    "bytes=10-": (416, None, "bytes */10"),
    "bytes=4-2": (200, b"0123456789", None),
    "lines=1-2": (200, b"0123456789", None),
}


@pytest.mark.parametrize("header", RANGES)
def test_a_range(sandbox, header):
    status, body, content_range = RANGES[header]
    sandbox.write("/tmp/ten", b"0123456789")
    answer = sandbox.read("/tmp/ten", headers={"Range": header})
    assert answer.status == status and answer.headers.get("Content-Range") == content_range
    assert body is None or answer.body == body


def test_listing_tells_what_there_is(sandbox):
    sandbox.check("rm -rf /tmp/d; mkdir -p /tmp/d/sub; cd /tmp/d; printf abc > f; chmod 640 f; ln -s f s; mkfifo p")
    page = sandbox.wire.get(sandbox.file("/tmp/d", "/list")).data
    entries = {entry["name"]: entry for entry in page["data"]}
    assert list(entries) == ["f", "p", "s", "sub"], "by name"
    assert {name: entry["kind"] for name, entry in entries.items()} == {
        "f": "file", "p": "other", "s": "symlink", "sub": "directory",
    }
    assert (entries["f"]["size"], entries["f"]["mode"], entries["f"]["uid"]) == (3, 0o640, 0)
    assert page["pagination"]["total"] == 4


def test_a_large_folder_is_paged(sandbox):
    sandbox.check("rm -rf /tmp/wide; mkdir /tmp/wide; cd /tmp/wide; seq -f %05g 2500 | xargs touch")
    names = []
    while True:
        page = sandbox.wire.get(sandbox.file("/tmp/wide", "/list") + f"&limit=1000&offset={len(names)}").data
        names += [entry["name"] for entry in page["data"]]
        if not page["data"] or len(names) >= page["pagination"]["total"]:
            break
    assert names == [f"{number:05}" for number in range(1, 2501)]


def test_moving(sandbox):
    move = lambda **fields: sandbox.wire.post(f"{sandbox.path}/files/move", fields)
    sandbox.check("rm -rf /tmp/m; mkdir -p /tmp/m/d; echo a > /tmp/m/a; echo b > /tmp/m/b; echo x > /tmp/m/d/x")
    assert move(**{"from": "/tmp/m/a", "to": "/tmp/m/new/c"}).data["path"] == "/tmp/m/new/c"
    answer = move(**{"from": "/tmp/m/b", "to": "/tmp/m/new/c"})
    assert (answer.status, answer.code) == (409, "conflict")
    assert move(**{"from": "/tmp/m/b", "to": "/tmp/m/new/c", "overwrite": True}).status == 200
    assert sandbox.check("cat /tmp/m/new/c") == "b\n"
    assert move(**{"from": "/tmp/m/d", "to": "/tmp/m/e"}).status == 200
    assert sandbox.check("cat /tmp/m/e/x") == "x\n"
    assert move(**{"from": "/tmp/m/none", "to": "/tmp/m/f"}).status == 404
    assert move(**{"from": "/tmp/m/e", "to": "/tmp/m/e/inside"}).status in (400, 409)


def test_making_and_removing_folders(sandbox):
    make = lambda path: sandbox.wire.post(f"{sandbox.path}/files/mkdir", {"path": path})
    assert make("/tmp/deep/er/and/deeper").data == {"path": "/tmp/deep/er/and/deeper", "created": True}
    assert make("/tmp/deep/er").data["created"] is False
    sandbox.write("/tmp/deep/file", b"x")
    assert make("/tmp/deep/file").status == 409
    assert sandbox.wire.delete(sandbox.file("/tmp/deep")).status == 409
    assert sandbox.wire.delete(sandbox.file("/tmp/deep") + "&recursive=true").data["deleted"] is True
    assert sandbox.wire.get(sandbox.file("/tmp/deep", "/stat")).status == 404
    assert sandbox.wire.delete(sandbox.file("/tmp/deep")).status == 404


def test_an_archive_goes_out_and_in_again(sandbox):
    sandbox.check(
        "rm -rf /tmp/tree /tmp/copy; mkdir -p /tmp/tree/sub; cd /tmp/tree; printf abc > f; chmod 750 f;"
        " ln -s f link; touch .hidden 'ä b'; head -c 300000 /dev/urandom > sub/random"
    )
    archive = sandbox.wire.get(sandbox.file("/tmp/tree", "/archive"))
    assert archive.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(archive.body)) as tar:
        members = {os.path.normpath(member.name): member for member in tar.getmembers()}
    assert {"f", "link", ".hidden", "ä b", "sub/random"} <= members.keys()
    assert members["f"].mode & 0o777 == 0o750 and members["link"].linkname == "f"
    url = sandbox.file("/tmp/copy", "/archive")
    assert sandbox.wire.request("PUT", url, raw=archive.body, content="application/x-tar").status == 200
    assert sandbox.check("diff -r /tmp/tree /tmp/copy && readlink /tmp/copy/link; stat -c %a /tmp/copy/f") == "f\n750\n"


def tar_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


HOSTILE_ARCHIVES = {
    "climbs out": tar_of(("../../etc/climbed", b"x", tarfile.REGTYPE, "")),
    "absolute": tar_of(("/etc/climbed", b"x", tarfile.REGTYPE, "")),
    "through a link": tar_of(("out", b"", tarfile.SYMTYPE, "/etc"), ("out/climbed", b"x", tarfile.REGTYPE, "")),
    "hard link out": tar_of(("out", b"", tarfile.LNKTYPE, "/etc/passwd")),
}


@pytest.mark.parametrize("name", HOSTILE_ARCHIVES)
def test_an_archive_cannot_leave_its_folder(sandbox, name):
    url = sandbox.file("/tmp/unpacked", "/archive")
    sandbox.wire.request("PUT", url, raw=HOSTILE_ARCHIVES[name], content="application/x-tar")
    assert sandbox.shell("ls /etc/climbed")["exit_code"] != 0
    assert sandbox.check("stat -c %h /etc/passwd") == "1\n"
    sandbox.check("rm -rf /tmp/unpacked")


def test_what_is_no_archive(sandbox):
    url = sandbox.file("/tmp/unpacked", "/archive")
    answer = sandbox.wire.request("PUT", url, raw=b"this is no archive" * 100, content="application/x-tar")
    assert answer.status == 400, answer


def test_a_full_disk_says_so(create):
    sandbox = create(disk_mib=64)
    chunks = (b"f" * MIB for _ in itertools.count())
    connection = sandbox.wire.connect()
    headers = sandbox.wire.headers({"Content-Length": str(200 * MIB)}, content="application/octet-stream")
    try:
        connection.request("PUT", sandbox.file("/root/fill"), itertools.islice(chunks, 200), headers)
    except (BrokenPipeError, ConnectionResetError):
        pass
    response = connection.getresponse()
    body = response.read()
    assert response.status == 507 and b"storage_full" in body, body
    assert sandbox.shell("test -e /root/fill")["exit_code"] == 1, "a file that did not fit is not there"
    assert sandbox.write("/root/small", b"fits").status == 200
