"""The partition of a run in its folder: complete, or for a private run only a digest."""

from __future__ import annotations

import hashlib
import json

from fedbb.partition.partition import Partition
from fedbb.runs.folder import RunFolder

PARTITION = "partition.json"
HIDDEN = "fedbb hidden partition 1"


def save_partition_digest(folder: RunFolder, partition: Partition) -> None:
    """Write only what a partition is recognized by: which samples a client has is its secret."""
    folder.write_json(PARTITION, {"format": HIDDEN, "sha256": _digest(partition)})


def is_same_partition(folder: RunFolder, partition: Partition) -> bool:
    """Tell whether the run of the folder divides the data in the same way."""
    content = folder.read_json(PARTITION)
    if isinstance(content, dict) and content.get("format") == HIDDEN:
        return bool(content.get("sha256") == _digest(partition))
    return Partition.load(folder.file(PARTITION)) == partition


def _digest(partition: Partition) -> str:
    held = [places.tolist() for places in partition.clients]
    content = [partition.samples, partition.fingerprint, dict(partition.rule), held]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
