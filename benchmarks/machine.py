"""What a measurement was taken on and with."""

from __future__ import annotations

import datetime
import os
import platform
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
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


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
