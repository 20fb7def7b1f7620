"""Waiting for a condition. Nothing in these tests waits for a time."""

import time


class NotInTime(AssertionError):
    """The condition did not come true within its deadline."""


def until(condition, what, deadline=30.0):
    """Asks until the answer is true, and returns it. `what` completes the sentence "waited for ..."."""
    end = time.monotonic() + deadline
    pause = 0.005
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise NotInTime(f"waited {deadline:.0f} s for {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
