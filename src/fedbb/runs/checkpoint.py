"""Model states as safetensors files that carry their own SHA-256."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fedbb.errors import RunError
from fedbb.files import replacing
from fedbb.records import ModelState

_BLANK = "0" * 64
_SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')


@dataclass(frozen=True)
class Checkpoint:
    """A state, and the round after which it was taken."""

    round: int
    state: ModelState


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically."""
    with replacing(path) as file:
        file.write(encode(checkpoint))


def load_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in this file, or refuse a damaged one."""
    try:
        return decode(path.read_bytes())
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"checkpoint {path} cannot be used: {error}") from error


def encode(checkpoint: Checkpoint) -> bytes:
    """Return a safetensors file whose metadata holds the SHA-256 of all its other bytes."""
    tensors = {f"params.{name}": tensor for name, tensor in checkpoint.state.params.items()}
    tensors |= {f"buffers.{name}": tensor for name, tensor in checkpoint.state.buffers.items()}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    metadata = {"format": "fedbb-1", "round": str(checkpoint.round), "sha256": _BLANK}
    content = safetensors.torch.save(tensors, metadata)
    return content.replace(_BLANK.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def decode(content: bytes) -> Checkpoint:
    """Return the checkpoint in these bytes; ValueError if any byte of them was changed."""
    seal = _SEAL.search(content[: 8 + _header_length(content)])
    if seal is None:
        raise ValueError("it carries no checksum of fedbb")
    blank = content[: seal.start(1)] + _BLANK.encode() + content[seal.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != seal.group(1):
        raise ValueError("its checksum does not match: the file is damaged")
    header = json.loads(content[8 : 8 + _header_length(content)])
    tensors = safetensors.torch.load(content)
    return Checkpoint(
        round=int(header["__metadata__"]["round"]),
        state=ModelState(_part(tensors, "params."), _part(tensors, "buffers.")),
    )


def _header_length(content: bytes) -> int:
    return min(int.from_bytes(content[:8], "little"), len(content))


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
