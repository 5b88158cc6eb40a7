"""The interface of secure aggregation, whichever scheme implements it: a sum over clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from fedbb.errors import PrivacyError
from fedbb.records import ClientFailure, FloatArray, IntArray
from fedbb.secagg.primitives.fixed_point import RingArray, from_ring
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.messages import AttemptId
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.protocol.transport import StageExchange, Transport

Values = Callable[[], FloatArray | IntArray]
"""Computes a client's vector."""


@dataclass(frozen=True)
class SumRequest:
    """What is summed: one vector from each client, in a round of a run.

    In a round of a run a client gives one vector, and helps to unmask it over one set of clients
    only. A sum outside the rounds has a number of its own, such as 0 for the statistics before
    round 1.

    Args:
        run: the name of the run.
        round: the number of the round, from 0.
        length: how many numbers each vector has.
        whole: the numbers are integers (int64); otherwise float64, summed in fixed point.
    """

    run: str
    round: int
    length: int
    whole: bool = False

    def __post_init__(self) -> None:
        if self.length < 1 or self.round < 0:
            raise PrivacyError("a sum needs vectors of at least one number, in a round from 0")


@dataclass(frozen=True, eq=False)
class SumResult:
    """The result of a secure sum.

    Args:
        values: the sum; int64 if the request was for integers, otherwise float64.
        clients: whose vectors it includes, in ascending order.
        failures: the other clients, and why they are missing.
        attempts: how many attempts with fresh keys it took.
    """

    values: FloatArray | IntArray
    clients: tuple[int, ...]
    failures: tuple[ClientFailure, ...] = ()
    attempts: int = 1


class SecureAggregation(Protocol):
    """The server's side: it learns the sum and its clients, and nothing else of their vectors."""

    def __call__(
        self, request: SumRequest, clients: Sequence[int], transport: Transport
    ) -> SumResult:
        """Return the sum over those of the clients who stay to the end.

        Raises `TooFewError` if they are too few. Then nothing was revealed, and the same request
        may be repeated, with the same or with other clients.
        """
        ...


class SecureAggregationClient(Protocol):
    """The client's side, one stage after the other; it serves every attempt of every sum."""

    def answer(self, stage: str, data: bytes, values: Values) -> bytes:
        """Return the answer to the message of a stage, or refuse it with a `PrivacyError`.

        `values` is called once, in the stage that needs the vector (`masked`, `encrypt`).
        """
        ...

    def save(self) -> bytes:
        """Return the state that the next stage needs. It is secret."""
        ...

    def restore(self, saved: bytes) -> None:
        """Continue from a saved state, possibly in another process."""
        ...


class CohortChangedError(Exception):
    """Clients dropped out so early that the attempt starts again with the remaining ones."""

    def __init__(self, remaining: tuple[int, ...]) -> None:
        super().__init__(remaining)
        self.remaining = remaining


CohortSum = Callable[[SumRequest, tuple[int, ...], StageExchange], tuple[RingArray, Sequence[int]]]
"""One attempt with one cohort: returns the sum and its clients, or raises CohortChangedError."""


def sum_over_cohort(
    attempt_sum: CohortSum,
    request: SumRequest,
    clients: Sequence[int],
    transport: Transport,
    server: tuple[Roster, Identity, Entropy],
) -> SumResult:
    """Return a sum; each attempt has fresh keys, and the cohort shrinks until all of it stays."""
    roster, identity, entropy = server
    cohort = tuple(sorted(set(clients)))
    for client in cohort:
        roster.key_of(client)
    failures: list[ClientFailure] = []

    for attempt in count(1):
        attempt_id = AttemptId.draw(request.run, request.round, attempt, entropy)
        exchange = StageExchange(roster, identity, attempt_id, transport, failures)
        try:
            total, survivors = attempt_sum(request, cohort, exchange)
            break
        except CohortChangedError as changed:
            cohort = changed.remaining
    values = from_ring(total, whole=request.whole, scale_bits=roster.scale_bits)
    # A client that dropped out after its vector was added is part of the sum.
    missing = sorted(
        (gone for gone in failures if gone.client not in survivors), key=lambda gone: gone.client
    )
    return SumResult(values, tuple(survivors), tuple(missing), attempt)
