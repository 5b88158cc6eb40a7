"""A run's division of the data as its folder keeps it: whole, or of a private run only a digest."""

from __future__ import annotations

import hashlib
import json

from fedbb.partition.partition import Partition
from fedbb.runs.folder import RunFolder

FILE = "partition.json"
HIDDEN = "fedbb hidden partition 1"


def hide_division(folder: RunFolder, partition: Partition) -> None:
    """Write only by what a division can be known again: who holds what is the clients' own."""
    folder.write_json(FILE, {"format": HIDDEN, "sha256": _digest(partition)})


def is_division(folder: RunFolder, partition: Partition) -> bool:
    """Tell whether the folder's run divides the data like this."""
    content = folder.read_json(FILE)
    if isinstance(content, dict) and content.get("format") == HIDDEN:
        return bool(content.get("sha256") == _digest(partition))
    return Partition.load(folder.file(FILE)) == partition


def _digest(partition: Partition) -> str:
    held = [places.tolist() for places in partition.clients]
    content = [partition.samples, partition.fingerprint, dict(partition.rule), held]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
