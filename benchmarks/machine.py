"""What a measurement was taken on and with."""

from __future__ import annotations

import datetime
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("fedbb", "torch", "numpy")


def facts() -> dict[str, Any]:
    """Return processor, cores, memory, C library, versions and date."""
    return {
        "processor": _line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "autogroup": _flag("/proc/sys/kernel/sched_autogroup_enabled"),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def foreign_load(seconds: float = 1.0) -> float:
    """Return how many cores are busy while this process sleeps; 0 where the system does not say."""
    before = _busy_seconds()
    time.sleep(seconds)
    return max(0.0, _busy_seconds() - before) / seconds


def _busy_seconds() -> float:
    """Return the time that all cores together have worked since the start of the system."""
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft, stolen = map(int, first[1:9])
    ticks = user + nice + system + interrupts + soft + stolen
    return ticks / os.sysconf("SC_CLK_TCK")


def _flag(path: str) -> bool:
    """Return whether a switch of the system is on; where there is none, it is off."""
    try:
        return Path(path).read_text(encoding="utf-8").strip() == "1"
    except OSError:
        return False


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _line(path: str, key: str) -> str | None:
    """Return what follows the colon in the first line that begins with the key."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    found = (line.split(":", 1)[1].strip() for line in lines if line.startswith(key))
    return next(found, None)
