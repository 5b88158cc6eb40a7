"""A client's state between rounds, kept at its site: in a folder, or in Flower's node state.

Flower's node state is empty at the start of every Flower run, so only the folder survives a
restart of the run.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, RecordDict

from fedbb._util.files import remove_leftovers
from fedbb._util.text import quote
from fedbb.errors import RunError
from fedbb.flower.app.serde import read_arrays
from fedbb.records import ClientState
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.simulation.client_state import ClientStateStore
from fedbb.state import flatten_client_state, unflatten_client_state

_RUN_NAME = re.compile(r"[A-Za-z0-9_+=-][\w.+=-]{0,150}")
_KEY = re.compile(r"state-(\d+)-(\d+)")


@dataclass(frozen=True)
class ClientStateRecords:
    """Records in the node's state, which Flower keeps as long as the run and the node last."""

    records: RecordDict

    def load(self, client: int, number: int) -> ClientState:
        """Return the state that a client stored in this round."""
        record = self.records.get(_key(client, number))
        if not isinstance(record, ArrayRecord):
            raise RunError(f"the node holds no state of round {number}")
        arrays = read_arrays(record)
        return unflatten_client_state({name: torch.from_numpy(a) for name, a in arrays.items()})

    def save(self, client: int, number: int, state: ClientState) -> None:
        """Store a client's state after this round."""
        tensors = flatten_client_state(state)
        arrays = {name: Array(tensor.numpy()) for name, tensor in tensors.items()}
        self.records[_key(client, number)] = ArrayRecord(arrays)

    def keep_only(self, client: int, rounds: Collection[int]) -> None:
        """Delete a client's states of all other rounds."""
        for key in list(self.records):
            found = _KEY.fullmatch(key)
            if found and int(found[1]) == client and int(found[2]) not in rounds:
                del self.records[key]


def open_client_state(folder: Path | None, run: str, records: RecordDict) -> ClientStateStore:
    """Return where a site keeps its client's state of a run.

    Args:
        folder: the site's state folder; without one, Flower's node state is used.
        run: the run's name, given by the server.
        records: Flower's node state.
    """
    if folder is None:
        return ClientStateRecords(records)
    path = run_folder(folder, run)
    remove_leftovers(path)
    return ClientStateFiles(path)


def run_folder(folder: Path, run: str) -> Path:
    """Return the folder of a run in a site's state folder; it is created if necessary."""
    if not _RUN_NAME.fullmatch(run):
        raise RunError(f"the run's name {quote(run, 60)} is not valid as the name of a folder")
    path = folder / run
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"the site's state folder cannot be written: {error.strerror}") from error
    return path


def _key(client: int, number: int) -> str:
    return f"state-{client}-{number}"
