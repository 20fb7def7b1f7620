// The official TypeScript client, unmodified, against a running service: every call it offers.
//
// `works` are the calls that must give right answers. `notYet` are calls of a surface that this service does not have:
// each must reject with an error of the client's own. When one of them begins to work, its test says so: move it up.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import * as sdk from "@nodeops-createos/sandbox";
import { calls, errors } from "./surface.mjs";

const { CREATEOS_SANDBOX_BASE_URL: baseUrl, CREATEOS_SANDBOX_API_KEY: apiKey } = process.env;
const SHAPE = "s-1vcpu-256mb";
const IMAGE = "debian:13";

let client, sandbox;
const create = (fields = {}) => client.createSandbox({ shape: SHAPE, rootfs: IMAGE, ...fields });
const collect = async (items) => {
  const all = [];
  for await (const item of items) all.push(item);
  return all;
};
const until = async (condition, what) => {
  const end = Date.now() + 30_000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `waited for ${what}`);
    await sdk.sleep(20);
  }
};

before(async () => {
  client = new sdk.CreateosSandboxClient();
  sandbox = await create();
});
after(async () => {
  await sandbox?.destroy();
});

const works = {};
const declare = (names, body) => names.forEach((name) => ((works[name] = body), undefined));

declare(["CreateosSandboxClient.baseUrl", "createClient", "VERSION"], () => {
  assert.equal(client.baseUrl, baseUrl);
  assert.equal(sdk.createClient({ baseUrl: `${baseUrl}/` }).baseUrl, baseUrl);
  assert.equal(sdk.VERSION, "0.7.1");
});

declare(["CreateosSandboxClient.healthz", "CreateosSandboxClient.readyz"], async () => {
  assert.deepEqual(await client.healthz(), { up: true });
  assert.equal((await client.readyz()).ready, true);
});

declare(["CreateosSandboxClient.whoami"], async () => {
  const me = await client.whoami();
  assert.equal(typeof me.user_id, "string");
  for (const count of ["running", "paused", "other", "total"]) assert.ok(Number.isInteger(me.stats[count]), count);
  assert.ok(me.stats.running >= 1);
});

declare(["CreateosSandboxClient.listShapes"], async () => {
  const shapes = await client.listShapes();
  const { vcpu, mem_mib, default_disk_mib } = shapes.find(({ id }) => id === SHAPE);
  assert.deepEqual([vcpu, mem_mib], [1, 256]);
  assert.ok(Number.isInteger(default_disk_mib) && default_disk_mib > 0);
  // These four need no key.
  const stranger = new sdk.CreateosSandboxClient({ apiKey: "skp_wrong" });
  assert.equal((await stranger.listShapes()).length, shapes.length);
});

declare(["CreateosSandboxClient.listRootfs"], async () => {
  const catalogue = await client.listRootfs();
  assert.ok(catalogue.rootfs.includes(IMAGE) && catalogue.rootfs.includes("devbox:1"));
  assert.ok(catalogue.rootfs.includes(catalogue.default));
  assert.deepEqual(catalogue.entries.map(({ name }) => name).sort(), [...catalogue.rootfs].sort());
});

declare(["CreateosSandboxClient.listHosts", "CreateosSandboxClient.iterateHosts"], async () => {
  const hosts = await client.listHosts();
  assert.equal(hosts.length, 1);
  assert.equal(hosts[0].status, "active");
  assert.ok(Number.isInteger(hosts[0].free_mib) && hosts[0].vm_count >= 1);
  assert.deepEqual((await collect(client.iterateHosts())).map(({ id }) => id), [hosts[0].id]);
});

declare(["CreateosSandboxClient.createSandbox", "Sandbox.create", "Sandbox.connect"], async () => {
  const made = await sdk.Sandbox.create({ shape: SHAPE, rootfs: IMAGE, envs: { A: "1" }, auto_pause_after_seconds: 3600 });
  assert.match(made.id, /^sb-/);
  assert.equal(made.status, "running");
  assert.deepEqual([made.data.vcpu, made.data.mem_mib, made.data.shape, made.data.rootfs], [1, 256, SHAPE, IMAGE]);
  assert.ok(made.data.spawn_ms > 0 && made.data.disk_mib > 0 && made.data.bandwidth_quota_bytes === -1);
  const again = await sdk.Sandbox.connect(made.id);
  assert.deepEqual([again.data.auto_pause_after_seconds, again.data.envs], [3600, ["A"]]);
  await assert.rejects(create({ name: made.name }), (error) => {
    assert.ok(error instanceof sdk.CreateosSandboxValidationError);
    assert.deepEqual([error.statusCode, error.code, error.method], [409, "name_taken", "POST"]);
    assert.ok(error.requestId);
    return true;
  });
  await assert.rejects(create({ shape: "s-0vcpu" }), { statusCode: 400, code: "invalid_request", message: /choices/ });
  await assert.rejects(create({ rootfs: "windows:95" }), { statusCode: 400, message: /debian:13/ });
  await made.destroy();
});

declare(["CreateosSandboxClient.getSandbox"], async () => {
  const found = await client.getSandbox(sandbox.id);
  assert.deepEqual([found.id, found.status, found.name], [sandbox.id, "running", sandbox.name]);
  assert.ok(Date.parse(found.data.created_at) <= Date.parse(found.data.running_at));
  await assert.rejects(client.getSandbox("sb-01jzzzzzzzzzzzzzzzzzzzzzzz"), (error) => {
    assert.ok(error instanceof sdk.CreateosSandboxNotFoundError);
    assert.equal(error.resourceId, "sb-01jzzzzzzzzzzzzzzzzzzzzzzz");
    return true;
  });
  const stranger = new sdk.CreateosSandboxClient({ apiKey: "skp_wrong" });
  await assert.rejects(stranger.getSandbox(sandbox.id), sdk.CreateosSandboxAuthError);
});

declare(["CreateosSandboxClient.getSandboxByIP"], async () => {
  if (sandbox.ip) assert.equal((await client.getSandboxByIP(sandbox.ip)).id, sandbox.id);
  await assert.rejects(client.getSandboxByIP("203.0.113.9"), sdk.CreateosSandboxNotFoundError);
});

declare(["CreateosSandboxClient.listSandboxes", "CreateosSandboxClient.iterateSandboxes"], async () => {
  const others = [await create(), await create()];
  const ids = (await client.listSandboxes()).map(({ id }) => id);
  for (const { id } of [sandbox, ...others]) assert.ok(ids.includes(id));
  assert.equal((await client.listSandboxes({ limit: 2 })).length, 2);
  assert.ok((await client.listSandboxes({ status: "running" })).some(({ id }) => id === sandbox.id));
  assert.ok(!(await client.listSandboxes({ status: "creating" })).some(({ id }) => id === sandbox.id));
  assert.deepEqual((await collect(client.iterateSandboxes())).map(({ id }) => id), ids);
  assert.equal((await collect(client.iterateSandboxes({ limit: 1 }))).length, 1);
  for (const other of others) await other.destroy();
});

declare(["CreateosSandboxHttp.request", "CreateosSandboxHttp.requestRaw", "CreateosSandboxHttp.throwForResponse"], async () => {
  assert.equal((await client.http.request("GET", `/v1/sandboxes/${sandbox.id}`)).id, sandbox.id);
  const response = await client.http.requestRaw("GET", "/v1/sandboxes/none");
  assert.equal(response.status, 404);
  await assert.rejects(client.http.throwForResponse(response, "GET", "/v1/sandboxes/none"), sdk.CreateosSandboxNotFoundError);
});

declare(["CreateosSandboxHttp.fetchAllPages", "CreateosSandboxHttp.iteratePages"], async () => {
  const all = await client.http.fetchAllPages("GET", "/v1/shapes");
  assert.ok(all.length > 1);
  assert.equal((await collect(client.http.iteratePages("GET", "/v1/shapes"))).length, all.length);
});

declare(["CreateosSandboxHttp.stream"], async () => {
  const body = { cmd: "echo", args: ["x"], stream: true };
  const frames = await collect(client.http.stream("POST", `/v1/sandboxes/${sandbox.id}/exec`, { body, query: { stream: true } }));
  assert.equal(frames.map((frame) => frame.stdout ?? "").join(""), "x\n");
  assert.equal(frames.at(-1).exit_code, 0);
});

declare(["Sandbox.id", "Sandbox.status", "Sandbox.ip", "Sandbox.name", "Sandbox.data", "Sandbox.toJSON", "Sandbox.refresh"], async () => {
  assert.equal(await sandbox.refresh(), sandbox);
  const { id, status, name, ip } = sandbox.data;
  assert.deepEqual([sandbox.id, sandbox.status, sandbox.name, sandbox.ip], [id, "running", name, ip]);
  assert.equal(status, "running");
  assert.deepEqual(JSON.parse(JSON.stringify(sandbox)), JSON.parse(JSON.stringify(sandbox.data)));
});

declare(["Sandbox.runCommand"], async () => {
  const { result, exec_ms } = await sandbox.runCommand("sh", ["-c", "echo out; echo err >&2; exit 3"]);
  assert.deepEqual([result.stdout, result.stderr, result.exit_code], ["out\n", "err\n", 3]);
  assert.ok(typeof exec_ms === "number" && exec_ms >= 0);
  assert.equal((await sandbox.runCommand("pwd")).result.exit_code, 0);
  const missing = (await sandbox.runCommand("no-such-program")).result;
  assert.equal(missing.exit_code, 127);
  assert.ok(missing.error);
  assert.equal((await sandbox.runCommand("echo", ["ä🐇", "$HOME", ""])).result.stdout, "ä🐇 $HOME \n");
});

declare(["Sandbox.sh"], async () => {
  assert.equal((await sandbox.sh("cd /tmp && pwd")).result.stdout, "/tmp\n");
  await assert.rejects(sandbox.sh("echo why >&2; exit 4", { label: "the step" }), /the step/);
});

declare(["Sandbox.streamCommand"], async () => {
  await sandbox.sh("rm -f /tmp/step*");
  const script = "for i in 1 2 3; do echo $i; until [ -e /tmp/step$i ]; do sleep 0.02; done; done; echo e >&2; exit 5";
  const seen = [];
  for await (const event of sandbox.streamCommand("sh", ["-c", script])) {
    if (event.type === "heartbeat") continue;
    seen.push(event);
    // Each line is printed only after we saw the one before.
    if (event.type === "stdout") await sandbox.sh(`touch /tmp/step${event.data.trim()}`);
  }
  assert.equal(seen.filter(({ type }) => type === "stdout").map(({ data }) => data).join(""), "1\n2\n3\n");
  assert.equal(seen.filter(({ type }) => type === "stderr").map(({ data }) => data).join(""), "e\n");
  assert.deepEqual(seen.at(-1), { type: "exit", exitCode: 5 });
  // Leaving the loop kills the command.
  const running = async () => (await sandbox.runCommand("pgrep", ["-f", "[s]leep 8881"])).result.exit_code === 0;
  for await (const event of sandbox.streamCommand("sh", ["-c", "echo begun; sleep 8881"])) {
    if (event.type === "stdout") break;
  }
  await until(async () => !(await running()), "the command to be killed");
});

declare(["SandboxFiles.upload", "SandboxFiles.download"], async () => {
  const content = new Uint8Array(1_280_000).map((_, index) => index % 251);
  const path = "/tmp/new folder/a+b ä.bin";
  await sandbox.files.upload(path, content);
  assert.deepEqual(new Uint8Array(await sandbox.files.download(path)), content);
  await sandbox.files.upload("/tmp/text", "some text ä");
  assert.equal(new TextDecoder().decode(await sandbox.files.download("/tmp/text")), "some text ä");
  await sandbox.files.upload("/tmp/empty", new Uint8Array());
  assert.equal((await sandbox.files.download("/tmp/empty")).byteLength, 0);
  // A stream has no length: it comes in chunks.
  await sandbox.files.upload("/tmp/stream", new Blob([content, content]).stream());
  assert.equal((await sandbox.files.download("/tmp/stream")).byteLength, 2 * content.byteLength);
  await assert.rejects(sandbox.files.download("/tmp/none"), sdk.CreateosSandboxNotFoundError);
  await assert.rejects(sandbox.files.upload("relative", "x"), sdk.CreateosSandboxValidationError);
  const large = new Blob(Array(64).fill(content));
  await sandbox.files.upload("/root/large", large);
  assert.equal((await sandbox.files.download("/root/large")).byteLength, large.size);
  await sandbox.sh("rm /root/large");
});

declare(["Sandbox.setIngress"], async () => {
  assert.equal((await sandbox.setIngress(true)).data.ingress_enabled, true);
  assert.equal((await sandbox.setIngress(false)).data.ingress_enabled, false);
});

declare(["Sandbox.setAutoPause"], async () => {
  assert.equal((await sandbox.setAutoPause(120)).data.auto_pause_after_seconds, 120);
  assert.equal((await sandbox.setAutoPause(null)).data.auto_pause_after_seconds, undefined);
  await assert.rejects(sandbox.setAutoPause(5), sdk.CreateosSandboxValidationError);
});

declare(["Sandbox.pause", "Sandbox.waitUntilPaused", "Sandbox.resume"], async () => {
  const box = await create();
  try {
    await box.sh("echo kept >/root/file; (sleep 7774 >/dev/null 2>&1 &)");
    assert.equal(await box.pause(), box);
    assert.ok(["pausing", "paused"].includes(box.status), box.status);
    assert.ok(box.name && box.data.created_at, "the answer takes the place of all that the client knew");
    assert.equal((await box.waitUntilPaused({ timeoutMs: 60_000 })).status, "paused");
    assert.ok(box.data.paused_at);
    assert.equal((await box.pause()).status, "paused", "repeating it is no error");
    await assert.rejects(box.runCommand("true"), { statusCode: 409, code: "wrong_state" });
    await assert.rejects(box.files.download("/root/file"), sdk.CreateosSandboxValidationError);
    const paused = await client.listSandboxes({ status: "paused" });
    assert.ok(paused.some((one) => one.id === box.id));
    await box.resume();
    assert.ok(["resuming", "running"].includes(box.status), box.status);
    assert.equal((await box.waitUntilRunning({ timeoutMs: 60_000 })).status, "running");
    assert.ok(box.data.last_resumed_at);
    assert.equal((await box.sh("cat /root/file; pgrep -c sleep")).result.stdout, "kept\n1\n");
    await assert.rejects(box.waitUntilPaused({ timeoutMs: 1 }), sdk.CreateosSandboxTimeoutError);
  } finally {
    await box.destroy();
  }
});

declare(["Sandbox.fork"], async () => {
  const parent = await create({ envs: { A: "1" } });
  const made = [parent];
  try {
    await parent.sh("echo kept >/root/file");
    await parent.pause();
    await parent.waitUntilPaused({ timeoutMs: 60_000 });
    const copy = await parent.fork();
    made.push(copy);
    assert.match(copy.id, /^sb-/);
    assert.notEqual(copy.id, parent.id);
    assert.equal(copy.data.forked_from, parent.id);
    await copy.waitUntilRunning({ timeoutMs: 60_000 });
    assert.equal((await copy.sh("cat /root/file; echo $A")).result.stdout, "kept\n1\n");
    const other = await parent.fork({ start_paused: true, envs: { B: "2" } });
    made.push(other);
    await other.waitUntilPaused({ timeoutMs: 60_000 });
    await other.resume();
    await other.waitUntilRunning({ timeoutMs: 60_000 });
    assert.equal((await other.sh("echo $A$B")).result.stdout, "2\n");
    assert.equal((await parent.refresh()).status, "paused");
  } finally {
    for (const one of made) await one.destroy();
  }
});

// The client's functions speak to the guest's own loopback, so the same requests are made there.
declare(["selfPause", "selfDelete"], async () => {
  const box = await create();
  for (const [action, state] of [["pause", "paused"], ["delete", "destroyed"]]) {
    const signal = `curl -sS -o /dev/null -w '%{http_code}' -X POST 'http://127.0.0.1:1029/self/${action}?reason=tour'`;
    const answer = await box.sh(signal).catch((error) => error);
    // What it asked for may come before the answer.
    assert.ok(answer instanceof sdk.CreateosSandboxError || answer.result.stdout === "202", String(answer));
    await until(async () => (await box.refresh()).status === state, `the sandbox to be ${state}`);
    if (state === "paused") await (await box.resume()).waitUntilRunning({ timeoutMs: 60_000 });
  }
});

declare(["Sandbox.waitUntilRunning"], async () => {
  assert.equal((await sandbox.waitUntilRunning({ timeoutMs: 10_000 })).status, "running");
});

declare(["Sandbox.destroy", "Sandbox.waitUntilDestroyed"], async () => {
  const made = await create();
  const answer = await made.destroy();
  assert.equal(answer.id, made.id);
  assert.ok(["destroying", "destroyed"].includes(answer.status));
  assert.equal((await made.waitUntilDestroyed({ timeoutMs: 60_000 })).status, "destroyed");
  assert.equal((await made.destroy()).status, "destroyed");
  await assert.rejects(made.runCommand("true"), { statusCode: 409, code: "wrong_state" });
});

declare(["Sandbox.waitForPortReady"], async () => {
  await sandbox.sh("(sleep 0.3; exec python3 -m http.server 8223 --bind 127.0.0.1) >/dev/null 2>&1 &");
  assert.equal(await sandbox.waitForPortReady(8223, { timeoutMs: 30_000 }), sandbox);
  await assert.rejects(sandbox.waitForPortReady(8224, { timeoutMs: 1000 }), sdk.CreateosSandboxTimeoutError);
});

// Calls that never leave the client: they are here so that the table is complete.
declare(["detectRuntime", "runtimeTag"], () => {
  assert.equal(sdk.detectRuntime(), "node");
  assert.match(sdk.runtimeTag(), /^node-/);
});
declare(["pollUntil", "sleep"], async () => {
  let count = 0;
  assert.equal(await sdk.pollUntil({ poll: async () => ++count, done: (value) => value === 2, timeoutMs: 5000 }), 2);
});
declare(["redactHeaders", "redactQuery", "redactUrl", "SENSITIVE_HEADER_NAMES", "SENSITIVE_QUERY_PARAMS"], () => {
  assert.ok(sdk.SENSITIVE_HEADER_NAMES.has("x-api-key"));
  assert.equal(sdk.redactHeaders({ "x-api-key": "k" })["x-api-key"], "redacted");
  const [parameter] = sdk.SENSITIVE_QUERY_PARAMS;
  assert.ok(!sdk.redactUrl(`${baseUrl}/?${parameter}=secret`).includes("secret"));
  assert.ok(!sdk.redactQuery(new URLSearchParams({ [parameter]: "secret" })).toString().includes("secret"));
});

const notYet = {
  "Sandbox.resize": () => sandbox.resize(1 << 20),
  "Sandbox.addSSHPubkeys": () => sandbox.addSSHPubkeys(["ssh-ed25519 AAAA x"]),
  "Sandbox.getEgress": () => sandbox.getEgress(),
  "Sandbox.setEgress": () => sandbox.setEgress(["example.com"]),
  "Sandbox.getBandwidth": () => sandbox.getBandwidth(),
  "Sandbox.rechargeBandwidth": () => sandbox.rechargeBandwidth(1),
  "Sandbox.attachNetwork": () => sandbox.attachNetwork("net"),
  "Sandbox.detachNetwork": () => sandbox.detachNetwork("net"),
  "Sandbox.listDisks": () => sandbox.listDisks(),
  "Sandbox.iterateDisks": () => collect(sandbox.iterateDisks()),
  "Sandbox.attachDisk": () => sandbox.attachDisk({ diskId: "d", mountPath: "/mnt" }),
  "Sandbox.detachDisk": () => sandbox.detachDisk({ diskId: "d", mountPath: "/mnt" }),
  "Sandbox.previewUrl": async () => sandbox.previewUrl(80),
  "TemplatesApi.list": () => client.templates.list(),
  "TemplatesApi.iterate": () => collect(client.templates.iterate()),
  "TemplatesApi.create": () => client.templates.create({ name: "t", dockerfile: "FROM x" }),
  "TemplatesApi.get": () => client.templates.get("t"),
  "TemplatesApi.delete": () => client.templates.delete("t"),
  "TemplatesApi.logs": () => client.templates.logs("t"),
  "TemplatesApi.followLogs": () => collect(client.templates.followLogs("t")),
  "NetworksApi.list": () => client.networks.list(),
  "NetworksApi.iterate": () => collect(client.networks.iterate()),
  "NetworksApi.create": () => client.networks.create({ name: "n" }),
  "NetworksApi.get": () => client.networks.get("n"),
  "NetworksApi.delete": () => client.networks.delete("n"),
  "DisksApi.list": () => client.disks.list(),
  "DisksApi.iterate": () => collect(client.disks.iterate()),
  "DisksApi.create": () => client.disks.create({ name: "d", kind: "s3", config: {}, credentials: {} }),
  "DisksApi.get": () => client.disks.get("d"),
  "DisksApi.delete": () => client.disks.delete("d"),
  "DisksApi.rotateCredentials": () => client.disks.rotateCredentials("d", {}),
};

// Errors that are not an answer of the service: the client sees by itself that it cannot be.
const local = {
  "Sandbox.previewUrl": sdk.CreateosSandboxError,
};

describe("works", () => {
  for (const [name, body] of Object.entries(works)) test(name, { timeout: 120_000 }, body);
});

describe("not yet", () => {
  for (const [name, body] of Object.entries(notYet)) {
    test(name, { timeout: 60_000 }, async () => {
      const error = await body().then(
        () => assert.fail(`${name} begins to work: move it to works, with a test of what it gives`),
        (error) => error,
      );
      if (error instanceof assert.AssertionError) throw error;
      assert.ok(error instanceof (local[name] ?? sdk.CreateosSandboxApiError), `${name}: ${error}`);
      if (!local[name]) {
        assert.ok([404, 501].includes(error.statusCode), `${name}: ${error.statusCode}`);
        assert.ok(error.requestId && error.envelope, "it is in the envelope, with a request id");
      }
      assert.equal((await sandbox.refresh()).status, "running", "it changed nothing");
    });
  }
});

describe("nothing was missed", () => {
  test("every call is in one of the tables", () => {
    const told = new Set([...Object.keys(works), ...Object.keys(notYet)]);
    const all = calls();
    assert.deepEqual([...all].filter((name) => !told.has(name)), [], "calls that this tour does not know");
    assert.deepEqual([...told].filter((name) => !all.has(name)), [], "calls that the client does not have");
    assert.equal(told.size, Object.keys(works).length + Object.keys(notYet).length, "no call is in both");
  });

  test("the error classes are those we know", () => {
    assert.equal(errors().size, 11);
  });

  test("a service that is gone is an error of its own", async () => {
    const gone = new sdk.CreateosSandboxClient({ baseUrl: "http://127.0.0.1:9", retry: false });
    await assert.rejects(gone.whoami(), sdk.CreateosSandboxConnectionError);
  });
});
