"""A buffer for messages that arrive before their turn: a few in memory, the rest on disk."""

from __future__ import annotations

import tempfile
from typing import BinaryIO, Self


class SpillBuffer:
    """Holds messages by number; those beyond `limit` are spilled to an unnamed temporary file.

    Clients of very different sizes finish out of order. Without the limit a slow first client
    would make the parent hold the models of all others.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[int, bytes] = {}
        self._spilled: dict[int, tuple[int, int]] = {}
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, number: int, message: bytes) -> None:
        """Hold a message."""
        if len(self._held) < self.limit:
            self._held[number] = message
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the buffer
        place = self._file.seek(0, 2)
        self._file.write(message)
        self._spilled[number] = (place, len(message))

    def __contains__(self, number: int) -> bool:
        return number in self._held or number in self._spilled

    def take(self, number: int) -> bytes:
        """Return a message and drop it."""
        if number in self._held:
            return self._held.pop(number)
        place, size = self._spilled.pop(number)
        assert self._file is not None
        self._file.seek(place)
        message = self._file.read(size)
        if not self._spilled:
            self._file.truncate(0)
        return message
