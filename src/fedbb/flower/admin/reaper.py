"""A small process that outlives whoever started a federation, only to end what was started.

It is run as a script and imports nothing but the standard library. Its standard input is a pipe
that nobody writes to: once the other end is gone, however its process ended, it ends every process
that carries the mark, softly at first.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "FEDBB_FEDERATION"
"""Environment variable that a federation's processes, and all they start, have in common."""

PATIENCE = 6.0
"""Seconds between SIGTERM and SIGKILL; Flower's programs end by themselves within five."""


def members(mark: str) -> list[int]:
    """Return the processes whose mark begins like this; none where there is no /proc."""
    wanted = f"\0{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        # Others' processes cannot be read, and processes end while they are looked at.
        with suppress(OSError):
            if wanted in b"\0" + (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def send(processes: list[int], signum: int) -> None:
    """Send a signal to processes that may have ended."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signum)


def end(mark: str, patience: float = PATIENCE) -> None:
    """End every process of a mark: SIGTERM, and SIGKILL for those who do not listen."""
    limit = time.monotonic() + patience
    left = members(mark)
    send(left, signal.SIGTERM)
    send(left, signal.SIGCONT)  # a stopped process cannot hear
    while left and time.monotonic() < limit:
        time.sleep(0.05)
        left = members(mark)
    while left:
        send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = members(mark)


if __name__ == "__main__":
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(deaf, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(sys.argv[1])
