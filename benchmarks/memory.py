"""Peak memory of a process and all that it started."""

from __future__ import annotations

import threading
import time
from pathlib import Path


class PeakMemory:
    """Samples a process tree in a thread; `peak` is the highest sum of its sizes, in bytes.

    A proportional size (PSS) counts a page that several processes share once, divided among them.
    """

    def __init__(self, process: int, interval: float = 0.1) -> None:
        self.process, self.interval = process, interval
        self.peak, self.processes = 0, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            processes = [self.process, *descendants(self.process)]
            size = sum(proportional_size(process) for process in processes)
            if size > self.peak:
                self.peak, self.processes = size, len(processes)
            # Reading costs the kernel time of its own: never more than a fifth of a core.
            self._stop.wait(max(self.interval, 4 * (time.monotonic() - began)))


def descendants(process: int) -> list[int]:
    """Return the processes that this one started, and theirs, by number.

    One that was handed to another parent is still found by its session.
    """
    found = []
    known = {process}
    for number, (parent, session) in sorted(_family().items()):
        if number != process and (parent in known or session == process):
            known.add(number)
            found.append(number)
    return found


def proportional_size(process: int) -> int:
    """Return the bytes of a process, 0 if it has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    return sum(int(words[1]) * 1024 for words in lines if words[0] == "Pss:")


def _family() -> dict[int, tuple[int, int]]:
    """Return parent and session of every process."""
    family = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        family[int(folder.name)] = int(fields[1]), int(fields[3])
    return family
