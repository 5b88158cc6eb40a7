"""Keeping freed memory in the process, for training frees and asks for the same again each step.

By default glibc returns large blocks to the system at once and gets them back page by page, each
page zeroed and faulted in anew: several hundred faults an image in a deep network.
"""

from __future__ import annotations

import ctypes

# The parameters of mallopt(3), by its own numbers.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3

_SETTINGS = {
    _MMAP_THRESHOLD: 1 << 30,
    _TRIM_THRESHOLD: (1 << 31) - 1,
    _TOP_PAD: 1 << 28,
}


def keep_freed_memory() -> bool:
    """Let this process keep what it frees; tell whether its C library understood."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    understood = [mallopt(name, value) == 1 for name, value in _SETTINGS.items()]
    return all(understood)
