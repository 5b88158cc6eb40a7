"""How one stage's messages get from the server to the parties of a secure sum and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol


class Wire(Protocol):
    """Carries bytes; it neither reads nor changes them, and who is silent has dropped out.

    At the other end, each message goes to `Party.answer` of the client it is for. A party that
    refuses (any `PrivacyError`) gives no answer. An attempt begins with a stage that every party
    starts afresh, so the wire need not tell attempts apart.
    """

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Carry a stage's message to each client named; yield (client, answer) as they come.

        The iterator ends when no further answer will be taken. Answers may be large: none is held
        by the server once the next one is asked for.
        """
        ...
