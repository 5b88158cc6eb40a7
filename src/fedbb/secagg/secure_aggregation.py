"""What a secure sum is asked and gives, whatever stands behind it; and a client's part in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedbb.errors import PrivacyError
from fedbb.records import ClientFailure, FloatArray, IntArray
from fedbb.secagg.protocol.transport import Wire

Values = Callable[[], FloatArray | IntArray]


@dataclass(frozen=True)
class Question:
    """What is summed: one vector of so many numbers from each client, in a round of a run.

    `whole` numbers (int64) are summed as they are, others (float64) in fixed point. A client gives
    one vector to a round of a run, and helps to unmask it over one set of clients, ever: a sum
    outside the rounds takes a number of its own, such as 0 for the statistics before round 1.
    """

    run: str
    round: int
    length: int
    whole: bool = False

    def __post_init__(self) -> None:
        if self.length < 1 or self.round < 0:
            raise PrivacyError("a sum is of vectors of one number or more, in a round from 0")


@dataclass(frozen=True, eq=False)
class Total:
    """The sum over `clients`, in rising order, who is not in it and why, and the attempts it took.

    `values` are int64 if the question was about whole numbers, float64 if not.
    """

    values: FloatArray | IntArray
    clients: tuple[int, ...]
    absences: tuple[ClientFailure, ...] = ()
    attempts: int = 1


class SecureSum(Protocol):
    """The server's side: learns the sum and who is in it, and nothing else of anybody's numbers."""

    def __call__(self, question: Question, clients: Sequence[int], wire: Wire) -> Total:
        """Return the sum over those of the clients who stay to the end.

        `TooFewError` if they are too few: then nothing was revealed, and the same question may be
        asked again, with the same or with other clients.
        """
        ...


class Party(Protocol):
    """A client's side, one stage after the other; it serves every attempt of every sum."""

    def answer(self, stage: str, message: bytes, values: Values) -> bytes:
        """Return the answer to a stage's message, or refuse with a `PrivacyError`.

        `values` is called once, in the stage that needs the client's vector (`masked`, `encrypt`).
        """
        ...

    def save(self) -> bytes:
        """Return all it must know in the next stage; secret, for the client's own eyes only."""
        ...

    def restore(self, saved: bytes) -> None:
        """Go on from what was saved, perhaps in another process."""
        ...
