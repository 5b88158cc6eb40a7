"""Reproducible random numbers: one seed, and a stream for every name, in any process and order."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive(seed: int, *name: str | int) -> int:
    """Return a 128-bit seed for the stream of this name."""
    words = "/".join(_word(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:16], "big")


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return a fresh generator for a named purpose, such as `stream(0, "order", round, client)`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *name)))


@contextmanager
def torch_stream(seed: int, *name: str | int) -> Iterator[None]:
    """Let torch draw from a named stream in the block; its global generator is restored after."""
    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, *name) & (2**63 - 1))
        yield


def _word(part: str | int) -> str:
    # operator.index gives numpy's integers the name of Python's, and refuses fractions.
    return f"str:{part}" if isinstance(part, str) else f"int:{operator.index(part)}"
