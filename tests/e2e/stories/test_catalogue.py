"""What the service says about itself and about what it can make."""

from conftest import IMAGE, SHAPE

OPEN = ["/healthz", "/readyz", "/v1/shapes", "/v1/rootfs"]


def test_some_answers_need_no_key(nobody):
    for path in OPEN:
        assert nobody.get(path).status == 200, path


def test_every_other_operation_needs_a_key(nobody, contract):
    """The document is the list: a new operation cannot be forgotten here."""
    for path, item in contract.document["paths"].items():
        for method in item.keys() & {"get", "put", "post", "patch", "delete"}:
            if path in OPEN:
                continue
            answer = nobody.request(method.upper(), path.replace("{", "").replace("}", "") + "?path=/tmp/a")
            assert (answer.status, answer.code) == (401, "unauthenticated"), f"{method} {path}: {answer}"


def test_health_and_readiness(account):
    assert account.get("/healthz").data == {"up": True}
    assert account.get("/readyz").data["ready"] is True


def test_who_am_i_counts_my_sandboxes(account, create):
    before = account.get("/v1/whoami").data
    create()
    after = account.get("/v1/whoami").data
    assert before["user_id"] == after["user_id"]
    assert after["stats"]["running"] == before["stats"]["running"] + 1
    assert after["stats"]["total"] >= after["stats"]["running"]


def test_shapes_are_paged(account):
    everything = account.get("/v1/shapes").data
    names = [shape["id"] for shape in everything["data"]]
    assert SHAPE in names and "s-1vcpu-1gb" in names and len(set(names)) == len(names)
    assert everything["pagination"]["total"] == len(names)
    paged = []
    while page := account.get(f"/v1/shapes?limit=2&offset={len(paged)}").data["data"]:
        assert len(page) <= 2
        paged += [shape["id"] for shape in page]
    assert paged == names


def test_root_file_systems_name_their_default(account):
    catalogue = account.get("/v1/rootfs").data
    assert {IMAGE, "devbox:1"} <= set(catalogue["rootfs"])
    assert catalogue["default"] in catalogue["rootfs"]
    assert {entry["name"] for entry in catalogue["entries"]} == set(catalogue["rootfs"])


def test_hosts_show_what_is_placed_on_them(account, create):
    create()
    [host] = account.get("/v1/hosts").data["data"]
    assert host["status"] == "active" and host["vm_count"] >= 1 and host["free_mib"] > 0


def test_doctor_tells_that_the_guest_has_no_network(account):
    report = account.get("/v1/doctor").data
    assert "network" in str(report).lower() and "loopback" in str(report).lower()


def test_audit_finds_an_owner_for_everything(account, create):
    sandbox = create()
    report = account.get("/v1/audit").data
    owned = {artefact["kind"] for artefact in report["artefacts"] if artefact.get("owner") == sandbox.id}
    assert {"process", "cgroup", "file"} <= owned
    assert [artefact for artefact in report["artefacts"] if "owner" not in artefact] == []


def test_images_tell_how_far_they_are(account):
    images = {image["name"]: image for image in account.get("/v1/images").data["data"]}
    assert images[IMAGE]["status"] == "ready"
    assert account.get(f"/v1/images/{IMAGE}").data["name"] == IMAGE
    assert account.post(f"/v1/images/{IMAGE}/build").data["status"] == "ready"
    assert account.get("/v1/images/windows:95").status == 404


def test_metrics_are_in_the_form_of_prometheus(account, sandbox):
    answer = account.get("/metrics")
    assert answer.status == 200
    lines = [line for line in answer.body.decode().splitlines() if line and not line.startswith("#")]
    assert any(line.startswith("hutch_") for line in lines)
    for line in lines:
        float(line.rpartition(" ")[2])


def test_each_answer_has_a_request_id(account):
    first, second = account.get("/healthz"), account.get("/healthz")
    assert first.headers["X-Request-Id"] and first.headers["X-Request-Id"] != second.headers["X-Request-Id"]


def test_the_port_speaks_nothing_but_http_1(account):
    """Clients that try HTTP/2 first fall back only when the connection is closed at once."""
    connection = account.connect()
    connection.connect()
    connection.sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    received = b""
    while piece := connection.sock.recv(4096):
        received += piece
    assert b"HTTP/2" not in received
