"""Refuses files that unpack to far more than they hold, before they fill the memory."""

from __future__ import annotations

import gzip
from typing import Any

from fedbb.data import mapped
from fedbb.errors import DataError

DENSEST = 200
"""How much smaller than its content a large packed file may be; zeros alone pack 1000 to 1."""


def refuse_bomb(what: str, packed: int, unpacked: int, densest: int = DENSEST) -> None:
    """Raise DataError if a file unpacks to a large content that is mostly the same.

    Args:
        what: the file or the part of it, for the message.
        packed: bytes in the file.
        unpacked: bytes in memory.
        densest: largest quotient of the two that is allowed for a large content.
    """
    if unpacked >= mapped.LARGE and unpacked > densest * max(1, packed):
        raise DataError(
            f"{what} has {packed:,} bytes and unpacks to {unpacked:,}, as a zip bomb does"
        )


class CheckedGzip(gzip.GzipFile):
    """The content of a .gz file, read piece by piece; a bomb is refused as soon as it shows."""

    def __init__(self, raw: Any, name: str) -> None:
        super().__init__(fileobj=raw)
        self._raw, self._title, self._read = raw, name, 0

    def read1(self, size: int = -1) -> bytes:
        """Return the next piece."""
        piece = super().read1(size)
        self._read += len(piece)
        refuse_bomb(self._title, self._raw.tell(), self._read)
        return piece
