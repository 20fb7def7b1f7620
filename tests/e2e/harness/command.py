"""The command line, as a user at a terminal or a script has it."""

import os
import subprocess

from .service import BINARY, GUEST


class CommandLine:
    """`hutch`, pointed at one service."""

    def __init__(self, url, key):
        self.environment = os.environ | {
            "HUTCH_URL": url,
            "HUTCH_API_KEY": key,
            "HUTCH_GUEST": str(GUEST),
            "NO_COLOR": "1",
        }

    def run(self, *arguments, input=None, timeout=120, **options):
        """Runs it to its end. Output is bytes."""
        return subprocess.run(
            [BINARY, *map(str, arguments)],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            timeout=timeout,
            env=self.environment,
            **options,
        )

    def start(self, *arguments, **options):
        """Starts it and hands it over."""
        return subprocess.Popen(
            [BINARY, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            **options,
        )
