"""The global state after a round, and what clients remembered by then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedbb.records import ClientMemory, ModelState
from fedbb.runs.sealed import flatten_state, gather_state, load_sealed, part, save_sealed


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
    return Checkpoint(int(facts["round"]), gather_state(tensors), memories)


def save_memory(path: Path, memory: ClientMemory) -> None:
    """Write what a client remembers atomically."""
    tensors = {} if memory.model is None else flatten_state(memory.model, "model.")
    if memory.momentum is not None:
        tensors |= {f"momentum.{name}": tensor for name, tensor in memory.momentum.items()}
    save_sealed(path, tensors, {})


def load_memory(path: Path) -> ClientMemory:
    """Return what a client remembers, or refuse a damaged file."""
    tensors, _ = load_sealed(path)
    model = gather_state(tensors, "model.")
    return ClientMemory(model if model.params else None, part(tensors, "momentum.") or None)
