"""Safetensors files that carry the SHA-256 of all their other bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fedbb._util.files import replacing
from fedbb.errors import RunError

_BLANK = "0" * 64
_SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')

Sealed = tuple[dict[str, Tensor], dict[str, str]]


def save_sealed(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write tensors and facts atomically."""
    with replacing(path) as file:
        file.write(seal(tensors, facts))


def load_sealed(path: Path) -> Sealed:
    """Return the tensors and facts of a file, or refuse a damaged one."""
    try:
        return unseal(path.read_bytes())
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"checkpoint {path} cannot be used: {error}") from error


def seal(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> bytes:
    """Return a safetensors file with its own checksum among its facts."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    content = _ordered(safetensors.torch.save(whole, {**facts, "sha256": _BLANK}))
    return content.replace(_BLANK.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def _ordered(content: bytes) -> bytes:
    """Sort the header, whose order safetensors leaves to chance, for equal bytes."""
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    header = json.dumps(entries, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + header.ljust(length) + content[8 + length :]


def unseal(content: bytes) -> Sealed:
    """Return what was sealed in these bytes; ValueError if any of them was changed."""
    header = content[: 8 + min(int.from_bytes(content[:8], "little"), len(content))]
    found = _SEAL.search(header)
    if found is None:
        raise ValueError("it carries no checksum of fedbb")
    blank = content[: found.start(1)] + _BLANK.encode() + content[found.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != found.group(1):
        raise ValueError("its checksum does not match: the file is damaged")
    return safetensors.torch.load(content), json.loads(header[8:])["__metadata__"]
