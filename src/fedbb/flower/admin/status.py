"""The status of a federation: its sites, its runs, and their progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedbb.errors import RunError
from fedbb.flower.admin.control import Control, Run
from fedbb.flower.admin.membership import dismissed
from fedbb.flower.admin.paths import FederationFolder
from fedbb.runs.folder import RunFolder


def describe(folder: FederationFolder) -> dict[str, Any]:
    """Return the status of a federation, from its server, as JSON values."""
    folder.check()
    with Control(folder.listening(), folder.ca) as control:
        nodes, runs, gone = control.nodes(), control.runs(), dismissed(folder, control)
    known = {node.name for node in nodes}
    others = {
        site.path.name: "dismissed" if site.path.name in gone else "not registered"
        for site in folder.sites()
        if site.path.name not in known
    }
    return {
        "server": control.address,
        "sites": [
            *({"site": node.name, "status": node.status, "since": node.since} for node in nodes),
            *({"site": name, "status": why, "since": ""} for name, why in others.items()),
        ],
        "runs": [describe_run(run) for run in runs],
    }


def describe_run(run: Run) -> dict[str, Any]:
    """Return the status of a run, with the rounds in its folder on this machine."""
    folder = str(run.config.get("folder", ""))
    return {
        "run": str(run.identity),
        "status": run.status,
        "details": run.details,
        "folder": folder,
        "done": finished_rounds(Path(folder)) if folder else 0,
        "rounds": _wanted_rounds(run),
        "begun": run.begun,
        "ended": run.ended,
        "bytes_to_sites": run.sent,
        "bytes_from_sites": run.received,
    }


def finished_rounds(path: Path) -> int:
    """Return the number of rounds in a run folder, 0 if there is none."""
    try:
        return len(RunFolder(path).records())
    except (RunError, OSError):
        return 0


def _wanted_rounds(run: Run) -> int | None:
    try:
        recipe = json.loads(str(run.config.get("recipe", "")))
        return int(recipe["rounds"]["number"])
    except (ValueError, KeyError, TypeError):
        return None
