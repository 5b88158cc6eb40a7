"""The global state after a round, and what clients remembered by then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedbb.records import ModelState
from fedbb.runs.checksummed import load_sealed, save_sealed
from fedbb.state import flatten_state, unflatten_state


@dataclass(frozen=True)
class Checkpoint:
    """A state, the round after which it was taken, and the round each client's memory is from."""

    round: int
    state: ModelState
    memories: Mapping[int, int] = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically."""
    facts = {"round": str(checkpoint.round), "memories": json.dumps(dict(checkpoint.memories))}
    save_sealed(path, flatten_state(checkpoint.state), facts)


def load_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in this file, or refuse a damaged one."""
    tensors, facts = load_sealed(path)
    memories = {int(client): number for client, number in json.loads(facts["memories"]).items()}
    return Checkpoint(int(facts["round"]), unflatten_state(tensors), memories)
