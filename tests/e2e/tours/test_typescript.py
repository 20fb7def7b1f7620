"""Runs the tour of the official TypeScript client, which is a test suite of Node's own."""

import os
import re
import subprocess
from pathlib import Path

import pytest

TOUR = Path(__file__).parent / "typescript"
NODE = os.environ.get("HUTCH_E2E_NODE", "node")


@pytest.mark.timeout(600)
def test_the_typescript_tour(service, capfd):
    if not (TOUR / "node_modules").is_dir():
        pytest.skip("the client is not installed: `cargo xtask e2e` installs it")
    environment = os.environ | {"CREATEOS_SANDBOX_BASE_URL": service.url, "CREATEOS_SANDBOX_API_KEY": service.key}
    run = subprocess.run(
        [NODE, "--test", "--test-reporter=spec", "tour.test.mjs"],
        cwd=TOUR,
        env=environment,
        capture_output=True,
        text=True,
        timeout=590,
    )
    counts = {name: int(count) for name, count in re.findall(r"^ℹ (\w+) (\d+)$", run.stdout, re.MULTILINE)}
    with capfd.disabled():
        print(f"\n    typescript: {counts.get('pass')} passed, {counts.get('fail')} failed", flush=True)
    assert run.returncode == 0 and counts["fail"] == 0, run.stdout[-20_000:] + run.stderr[-2_000:]
    assert counts["pass"] > 60, "the tour became shorter"
