"""How many cores this process may really use."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores(groups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Return the cores of the process's affinity, or fewer if a control group grants less time.

    A part of a core counts as one: a worker that waits now and then still adds something.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    granted = _granted(groups, membership)
    return max(1, cores if granted is None else min(cores, math.ceil(granted)))


def _granted(groups: Path, membership: Path) -> float | None:
    """Return the cores' worth of time of the tightest control group around this process."""
    limits = [_limit(folder) for folder in _folders(groups, membership)]
    return min((limit for limit in limits if limit is not None), default=None)


def _folders(groups: Path, membership: Path) -> list[Path]:
    """Return the folders of the process's groups and all groups around them, both versions."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [groups, groups / "cpu"]
    for line in lines:
        _, controllers, inside = line.split(":", 2)
        if controllers in ("", "cpu", "cpu,cpuacct"):
            top = groups / "cpu" if controllers else groups
            own = top / inside.lstrip("/")
            found += [folder for folder in (own, *own.parents) if folder.is_relative_to(top)]
    return found


def _limit(folder: Path) -> float | None:
    # Version 2 says "quota period" or "max period" in one file, version 1 has a file for each.
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
