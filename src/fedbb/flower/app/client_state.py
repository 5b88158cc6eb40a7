"""What a site remembers between rounds: in a folder of its own, or in Flower's state of the node.

A new run of Flower begins with an empty state, so only the folder outlasts a restart.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from flwr.app import Array, ArrayRecord, RecordDict

from fedbb._util.files import remove_leftovers
from fedbb.errors import RunError
from fedbb.flower.app.serde import read_arrays
from fedbb.records import ClientState
from fedbb.runs.client_states import ClientStateFiles
from fedbb.simulation.client_state import ClientStateStore
from fedbb.state import flatten_client_state, unflatten_client_state

_NAME = re.compile(r"[A-Za-z0-9_+=-][\w.+=-]{0,150}")
_FILE = re.compile(r"client-(\d+)-round-(\d+)\.safetensors")
_KEY = re.compile(r"memory-(\d+)-(\d+)")


class SiteMemory(ClientStateStore, Protocol):
    """A store that drops what the server can no longer ask for."""

    def tidy(self, client: int, kept: Collection[int]) -> None:
        """Forget a client's memories of all rounds but these."""
        ...


@dataclass(frozen=True)
class FolderMemory:
    """Sealed files, a folder for each run."""

    files: ClientStateFiles

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept in this round."""
        return self.files.load(client, number)

    def save(self, client: int, number: int, memory: ClientState) -> None:
        """Keep what a client remembers after this round."""
        self.files.save(client, number, memory)

    def tidy(self, client: int, kept: Collection[int]) -> None:
        """Forget a client's memories of all rounds but these."""
        for path in self.files.folder.iterdir():
            found = _FILE.fullmatch(path.name)
            if found and int(found[1]) == client and int(found[2]) not in kept:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class NodeMemory:
    """Records in the node's state, which Flower keeps for as long as a run and the node last."""

    state: RecordDict

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept in this round."""
        record = self.state.get(_key(client, number))
        if not isinstance(record, ArrayRecord):
            raise RunError(f"the node remembers nothing of round {number}")
        tensors = {name: torch.from_numpy(array) for name, array in read_arrays(record).items()}
        return unflatten_client_state(tensors)

    def save(self, client: int, number: int, memory: ClientState) -> None:
        """Keep what a client remembers after this round."""
        tensors = flatten_client_state(memory)
        arrays = {name: Array(tensor.numpy()) for name, tensor in tensors.items()}
        self.state[_key(client, number)] = ArrayRecord(arrays)

    def tidy(self, client: int, kept: Collection[int]) -> None:
        """Forget a client's memories of all rounds but these."""
        for key in list(self.state):
            found = _KEY.fullmatch(key)
            if found and int(found[1]) == client and int(found[2]) not in kept:
                del self.state[key]


def open_memory(folder: Path | None, run: str, state: RecordDict) -> SiteMemory:
    """Return where a site keeps its memories of a run, which the server names."""
    if folder is None:
        return NodeMemory(state)
    path = run_folder(folder, run)
    remove_leftovers(path)
    return FolderMemory(ClientStateFiles(path))


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
