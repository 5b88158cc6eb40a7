"""What a run keeps on disk to resume: the global state of a round, and the clients' own states.

Both are safetensors files that carry the SHA-256 of all their other bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fedbb._util.files import explain_error, parse_json, replacing
from fedbb._util.text import quote
from fedbb.errors import RunError
from fedbb.records import ClientState, ModelState, Tensors
from fedbb.state import (
    add_prefix,
    flatten_client_state,
    flatten_state,
    select,
    unflatten_client_state,
    unflatten_state,
)

MODEL, BUFFER_NAMES = "model", "buffers"
"""Metadata of a model file: its description, and which of its tensors are buffers."""

SERVER = "server."
"""Prefix of the tensors of the server steps in a checkpoint."""

_BLANK = "0" * 64
_CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_CLIENT_FILE = re.compile(r"client-(\d+)-round-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The global state after a round.

    Args:
        round: the number of the round, 0 before the first.
        state: the global state.
        state_rounds: the round that each client's own state is from.
        run: what distinguishes the run from others; None in files of older versions.
        server: the state of the method's server steps.
    """

    round: int
    state: ModelState
    state_rounds: Mapping[int, int] = field(default_factory=dict)
    run: str | None = None
    server: Tensors = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint, model: str | None = None) -> None:
    """Write a checkpoint atomically.

    Args:
        path: The file.
        checkpoint: What it holds.
        model: Description of the model as JSON. With it the file is a model to take away: its
            tensors have the names of PyTorch's state_dict, and the server state is left out.
    """
    # "memories" is the key of run folders from the beginning.
    rounds = json.dumps(dict(checkpoint.state_rounds))
    metadata = {"round": str(checkpoint.round), "memories": rounds}
    metadata |= {} if checkpoint.run is None else {"run": checkpoint.run}
    state = checkpoint.state
    if model is None:
        server = add_prefix(SERVER, checkpoint.server)
        save_checksummed(path, {**flatten_state(state), **server}, metadata)
        return
    metadata |= {MODEL: model, BUFFER_NAMES: json.dumps(sorted(state.buffers))}
    save_checksummed(path, {**state.params, **state.buffers}, metadata)


def load_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file; RunError if it is damaged."""
    tensors, metadata = load_checksummed(path)
    try:
        number = int(metadata["round"])
        rounds = _state_rounds(parse_json(metadata["memories"]), number)
        server = {} if MODEL in metadata else select(tensors, SERVER)
        return Checkpoint(number, _state(tensors, metadata), rounds, metadata.get("run"), server)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"checkpoint {path} cannot be used: {error!r} in its metadata") from error


def _state_rounds(held: Mapping[str, Any], number: int) -> dict[int, int]:
    """Return the rounds of the clients' states; ValueError if one is after round `number`."""
    rounds = {int(client): seen for client, seen in held.items()}
    for client, seen in rounds.items():
        if type(seen) is not int or not 0 <= seen <= number:
            raise ValueError(f"the state of client {client} is from round {quote(seen, 40)}")
    return rounds


def read_model_metadata(path: Path) -> str | None:
    """Return the description of the model that a file carries, None if it carries none."""
    return load_checksummed(path)[1].get(MODEL)


def _state(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> ModelState:
    if MODEL not in metadata:
        return unflatten_state(tensors)
    buffers = set(parse_json(metadata[BUFFER_NAMES]))
    return ModelState(
        params={name: tensor for name, tensor in tensors.items() if name not in buffers},
        buffers={name: tensor for name, tensor in tensors.items() if name in buffers},
    )


@dataclass(frozen=True)
class ClientStateFiles:
    """A store of client states in a folder, one file for each client and round.

    Whichever process trained a client writes its file.
    """

    folder: Path

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept after round `number`; RunError if the file is damaged."""
        path = self._path(client, number)
        tensors, metadata = load_checksummed(path)
        # Files of older versions do not tell.
        found = (metadata.get("client", str(client)), metadata.get("round", str(number)))
        if found != (str(client), str(number)):
            raise RunError(
                f"checkpoint {path} cannot be used: it is of client {quote(found[0], 40)} in round "
                f"{quote(found[1], 40)}"
            )
        return unflatten_client_state(tensors)

    def save(self, client: int, number: int, state: ClientState) -> None:
        """Keep what a client keeps after round `number`; it is on disk when this returns."""
        path = self._path(client, number)
        try:
            metadata = {"client": str(client), "round": str(number)}
            save_checksummed(path, flatten_client_state(state), metadata)
        except OSError as error:
            raise RunError(
                f"round {number} could not be saved in {path.parent}: "
                f"{explain_error(error)}; "
                "the rounds before it are kept, and --resume continues from there"
            ) from error

    def keep_only(self, client: int, rounds: Collection[int]) -> None:
        """Drop a client's states of all rounds but these."""
        for number, path in self._files(client).items():
            if number not in rounds:
                path.unlink(missing_ok=True)

    def keep_newest(self, client: int, number: int) -> None:
        """Drop all but the newest `number` states of a client."""
        self.keep_only(client, sorted(self._files(client))[-number:])

    def _files(self, client: int) -> dict[int, Path]:
        """Return the files of a client by round."""
        found = (
            (_CLIENT_FILE.fullmatch(path.name), path)
            for path in self.folder.glob(f"client-{client:06d}-*.safetensors")
        )
        return {int(match[2]): path for match, path in found if match}

    def _path(self, client: int, number: int) -> Path:
        return self.folder / f"client-{client:06d}-round-{number:06d}.safetensors"


def save_checksummed(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write tensors and metadata atomically, with their checksum."""
    with replacing(path) as file:
        file.write(add_checksum(tensors, metadata))


def load_checksummed(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and metadata of a file; RunError if it is damaged."""
    try:
        return check_checksum(path.read_bytes())
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"checkpoint {path} cannot be used: {error}") from error


def add_checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return a safetensors file with its own checksum in its metadata."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    content = _ordered(safetensors.torch.save(whole, {**metadata, "sha256": _BLANK}))
    return content.replace(_BLANK.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def _ordered(content: bytes) -> bytes:
    """Sort the header, whose order safetensors leaves open: equal content has equal bytes."""
    length = int.from_bytes(content[:8], "little")
    entries = parse_json(content[8 : 8 + length])
    header = json.dumps(entries, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + header.ljust(length) + content[8 + length :]


def check_checksum(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and metadata in these bytes; ValueError if any of them was changed."""
    header = content[: 8 + min(int.from_bytes(content[:8], "little"), len(content))]
    found = _CHECKSUM.search(header)
    if found is None:
        raise ValueError("it carries no checksum of fedbb")
    blank = content[: found.start(1)] + _BLANK.encode() + content[found.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != found.group(1):
        raise ValueError("its checksum does not match: the file is damaged")
    return safetensors.torch.load(content), parse_json(header[8:])["__metadata__"]
