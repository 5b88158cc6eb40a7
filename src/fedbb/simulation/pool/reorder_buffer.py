"""Messages that came before their turn: a few in memory, the rest on disk."""

from __future__ import annotations

import tempfile
from typing import BinaryIO, Self


class SpillBuffer:
    """Keeps messages by number; those beyond `limit` wait in a file without a name."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._here: dict[int, bytes] = {}
        self._away: dict[int, tuple[int, int]] = {}
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, number: int, message: bytes) -> None:
        """Keep a message."""
        if len(self._here) < self.limit:
            self._here[number] = message
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the parking
        place = self._file.seek(0, 2)
        self._file.write(message)
        self._away[number] = (place, len(message))

    def __contains__(self, number: int) -> bool:
        return number in self._here or number in self._away

    def take(self, number: int) -> bytes:
        """Return a message and forget it."""
        if number in self._here:
            return self._here.pop(number)
        place, size = self._away.pop(number)
        assert self._file is not None
        self._file.seek(place)
        message = self._file.read(size)
        if not self._away:
            self._file.truncate(0)
        return message
