"""The client state of a site between rounds: in a folder of its own, or in Flower's node state.

A new run of Flower begins with an empty state, so only the folder outlasts a restart.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, RecordDict

from fedbb._util.files import remove_leftovers
from fedbb.errors import RunError
from fedbb.flower.app.serde import read_arrays
from fedbb.records import ClientState
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.simulation.client_state import ClientStateStore
from fedbb.state import flatten_client_state, unflatten_client_state

_NAME = re.compile(r"[A-Za-z0-9_+=-][\w.+=-]{0,150}")
_KEY = re.compile(r"memory-(\d+)-(\d+)")


@dataclass(frozen=True)
class NodeStateStore:
    """Records in the node's state, which Flower keeps for as long as a run and the node last."""

    state: RecordDict

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept after round `number`."""
        record = self.state.get(_key(client, number))
        if not isinstance(record, ArrayRecord):
            raise RunError(f"the node holds no client state of round {number}")
        tensors = {name: torch.from_numpy(array) for name, array in read_arrays(record).items()}
        return unflatten_client_state(tensors)

    def save(self, client: int, number: int, state: ClientState) -> None:
        """Keep what a client keeps after round `number`."""
        tensors = flatten_client_state(state)
        arrays = {name: Array(tensor.numpy()) for name, tensor in tensors.items()}
        self.state[_key(client, number)] = ArrayRecord(arrays)

    def keep_only(self, client: int, rounds: Collection[int]) -> None:
        """Drop a client's states of all rounds but these."""
        for key in list(self.state):
            found = _KEY.fullmatch(key)
            if found and int(found[1]) == client and int(found[2]) not in rounds:
                del self.state[key]


def open_store(folder: Path | None, run: str, state: RecordDict) -> ClientStateStore:
    """Return where a site keeps its client state in a run, which the server names."""
    if folder is None:
        return NodeStateStore(state)
    path = run_folder(folder, run)
    remove_leftovers(path)
    return ClientStateFiles(path)


def run_folder(folder: Path, run: str) -> Path:
    """Return the folder of a run in a site's state folder, made if need be."""
    if not _NAME.fullmatch(run):
        raise RunError(f"the run's name {run[:60]!r} is no name for a folder")
    path = folder / run
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"the site's state folder cannot be written: {error.strerror}") from error
    return path


def _key(client: int, number: int) -> str:
    return f"memory-{client}-{number}"
