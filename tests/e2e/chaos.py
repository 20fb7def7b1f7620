"""Creates and destroys sandboxes while the service, guest kernels and agents are killed with `kill -9`.

    python -m chaos --count 300 --seed 1

What must hold afterwards: the service starts again, each sandbox that nobody harmed still answers and has its file,
each that was harmed is told to be so, all can be destroyed, and the audit finds nothing. What was done is decided by
the seed; when it meets what, by the machine.
"""

import argparse
import collections
import http.client
import json
import os
import random
import signal
import sys
import threading
import time

from harness.service import Service
from harness.wait import until
from harness.wire import Sandbox, Wire

SHAPE, IMAGE = "s-1vcpu-256mb", "debian:13"

#: What a caller may see while others kill: the connection breaks, or the service says that something is lost.
LOST = (OSError, http.client.HTTPException, ValueError)

#: Sandboxes that are kept alive for a while, to be harmed or to be found unharmed at the end.
RESIDENTS = 6

#: How many attempts a sandbox may need: a service that is killed takes all creates along that are under way.
ATTEMPTS = 5


class Told(AssertionError):
    """A promise was broken."""


class Chaos:
    def __init__(self, count, seed, workers):
        self.random = random.Random(seed)
        self.count, self.workers = count, workers
        self.lock = threading.Lock()
        self.begun = 0
        self.residents = {}
        self.harmed = set()
        self.counts = collections.Counter()
        self.starts = []
        self.problems = []
        self.over = threading.Event()
        self.service = Service()

    # ---- creating and destroying ----

    def work(self):
        while number := self.next_number():
            try:
                self.one(number)
            except LOST as error:
                self.counts[f"lost: {type(error).__name__}"] += 1
                self.wait_for_service()
            except Exception as error:  # noqa: BLE001 - a problem of any kind is told at the end
                self.problems.append(f"sandbox {number}: {type(error).__name__}: {error}")

    def next_number(self):
        """The next attempt's number, until enough sandboxes have come to run."""
        with self.lock:
            if self.counts["created"] >= self.count:
                return None
            if self.begun == ATTEMPTS * self.count:
                self.problems.append(f"{self.begun} attempts made only {self.counts['created']} sandboxes")
                return None
            self.begun += 1
            if self.begun % 20 == 0:
                done = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
                print(f"{self.counts['created']}/{self.count}: {done}", file=sys.stderr, flush=True)
            return self.begun

    def one(self, number):
        wire = self.wire()
        answer = wire.post("/v1/sandboxes", {"shape": SHAPE, "rootfs": IMAGE, "name": f"chaos-{number}"})
        if answer.status != 200:
            self.counts[f"create {answer.status}"] += 1
            if answer.status < 500:
                raise Told(f"create answered {answer}")
            return
        sandbox = Sandbox(wire, answer.data)
        self.counts["created"] += 1
        marker = f"{number}-{sandbox.id}"
        answer = sandbox.execute("sh", "-c", f"echo {marker} > /root/marker; sync; cat /root/marker")
        if answer.status == 200:
            result = answer.data["result"]
            complete = result["exit_code"] == 0 and result["stdout"] == f"{marker}\n"
            if not complete and sandbox.id not in self.harmed and result["exit_code"] == 0:
                raise Told(f"an exec told a success that was none: {result}")
            if complete:
                with self.lock:
                    self.residents[sandbox.id] = marker
        self.destroy_somebody(wire, keep=RESIDENTS)

    def destroy_somebody(self, wire, keep):
        with self.lock:
            if len(self.residents) <= keep:
                return
            name = self.random.choice(sorted(self.residents))
            self.residents.pop(name)
        answer = wire.delete(f"/v1/sandboxes/{name}")
        self.counts["destroyed" if answer.status == 200 else f"destroy {answer.status}"] += 1

    def wire(self):
        return Wire(self.service.url, self.key, timeout=60)

    def wait_for_service(self):
        until(lambda: self.service.running and self.service._answers(), "the service to come back", 60)

    # ---- killing ----

    def kill(self):
        while not self.over.is_set():
            # Not a wait for anything: the rhythm of the harm.
            self.over.wait(self.random.uniform(0.05, 1.5))
            if self.over.is_set():
                return
            try:
                self.random.choice([self.kill_service, self.kill_kernel, self.kill_stub])()
            except LOST:
                self.wait_for_service()

    def kill_service(self):
        self.service.kill()
        self.counts["killed service"] += 1
        self.starts.append(self.service.start())

    def kill_kernel(self):
        self.kill_process("kernel", min)

    def kill_stub(self):
        """Each process of the guest is one of the host: with nobody else in the sandbox, the agent."""
        self.kill_process("agent", max)

    def kill_process(self, name, choose):
        with self.lock:
            if not self.residents:
                return
            victim = self.random.choice(sorted(self.residents))
        processes = Sandbox(self.wire(), {"id": victim}).processes()
        if not processes:
            return
        with self.lock:
            self.residents.pop(victim, None)
            self.harmed.add(victim)
        try:
            os.kill(choose(processes), signal.SIGKILL)
            self.counts[f"killed {name}"] += 1
        except ProcessLookupError:
            pass

    # ---- the run ----

    def run(self):
        began = time.monotonic()
        first = self.service.start()
        self.key = self.service.key
        killer = threading.Thread(target=self.kill)
        workers = [threading.Thread(target=self.work) for _ in range(self.workers)]
        for thread in [killer, *workers]:
            thread.start()
        for worker in workers:
            worker.join()
        self.over.set()
        killer.join()
        self.service.kill()
        last = self.service.start()
        try:
            self.judge()
        finally:
            self.end()
        report = {
            "count": self.count,
            "seconds": round(time.monotonic() - began, 1),
            "counts": dict(sorted(self.counts.items())),
            "ready_seconds": {"first": first, "last": last, "worst": max([*self.starts, last])},
            "survivors": len(self.residents),
            "problems": self.problems,
        }
        print(json.dumps(report, indent=2))
        return 1 if self.problems else 0

    def judge(self):
        """The service is back. What was not harmed is as it was."""
        wire = self.wire()
        settled = {"running", "failed", "destroyed", "error"}

        def all_settled():
            views = wire.get("/v1/sandboxes?limit=500").data["data"]
            return all(view["status"] in settled for view in views)

        until(all_settled, "every sandbox to settle", 120)
        for name, marker in self.residents.items():
            view = wire.get(f"/v1/sandboxes/{name}").data
            if view["status"] != "running":
                self.problems.append(f"{name} was not harmed but is {view['status']}: {view.get('reason')}")
                continue
            answer = Sandbox(wire, view).execute("cat", "/root/marker", timeout_ms=30_000)
            if answer.status != 200 or answer.data["result"]["stdout"] != f"{marker}\n":
                self.problems.append(f"{name} was not harmed but answers {answer}")
        for name in self.harmed:
            view = wire.get(f"/v1/sandboxes/{name}").data
            if view["status"] == "running" and Sandbox(wire, view).execute("true", timeout_ms=30_000).status != 200:
                self.problems.append(f"{name} was harmed and does not answer, but is told to run")
        self.audit("with sandboxes alive")

    def end(self):
        wire = self.wire()
        for view in wire.get("/v1/sandboxes?limit=500").data["data"]:
            wire.delete(f"/v1/sandboxes/{view['id']}")
        until(lambda: wire.get("/v1/sandboxes").data["pagination"]["total"] == 0, "every sandbox to be gone", 120)
        self.audit("after all are destroyed")
        if self.service.stop() != 0:
            self.problems.append(f"the service did not end well:\n{self.service.tail()}")
        if self.problems:
            print(self.service.tail(200), file=sys.stderr)
        self.service.remove()

    def audit(self, when):
        audit = self.service.audit()
        if audit.returncode != 0:
            self.problems.append(f"the audit {when} found something:\n{audit.stdout}{audit.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    return Chaos(arguments.count, arguments.seed, arguments.workers).run()


if __name__ == "__main__":
    sys.exit(main())
