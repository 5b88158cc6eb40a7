"""How a process computes: the number of torch's threads, and the memory it keeps."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# The parameters of mallopt(3), by its own numbers: trim threshold, top pad, mmap threshold.
_MALLOC_SETTINGS = {-1: (1 << 31) - 1, -2: 1 << 28, -3: 1 << 30}


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch compute with this number of threads in the block; bits of results depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> bool:
    """Let this process keep the memory it frees; return whether its C library understood.

    Training frees and allocates the same blocks in every step. By default glibc returns large ones
    to the system at once and gets them back page by page, each zeroed and faulted in anew: several
    hundred page faults an image in a deep network.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    understood = [mallopt(name, value) == 1 for name, value in _MALLOC_SETTINGS.items()]
    return all(understood)
