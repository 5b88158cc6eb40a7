"""One round in private: a secure sum of weighted changes; the server sees no client's update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedbb.aggregation.validation import update_norm
from fedbb.errors import PrivacyError, TooFewError
from fedbb.records import ClientFailure, ClientReport, FloatArray, IntArray, ModelState
from fedbb.rounds.policy import RoundPolicy
from fedbb.rounds.round import RoundResult, repeat_until_quorum
from fedbb.secagg.audit import RoundAudit
from fedbb.secagg.cbr import SCALARS, abstain, combine
from fedbb.secagg.protocol.roster import LEAST
from fedbb.secagg.protocol.secure_aggregation import SecureAggregation, SumRequest, SumResult
from fedbb.secagg.protocol.transport import Transport
from fedbb.state import digest

OpenTransport = Callable[[int, ModelState], Transport]
"""Opens the transport to the clients of a round, who start from this state."""

_ROUNDING = 2.0**-30
"""A generous bound of the rounding error of a sum of weights in fixed point."""


@dataclass(frozen=True, eq=False)
class SecureRound:
    """A round in which the server learns who took part, ΣW·Δ and ΣW, and nothing else.

    Args:
        aggregation: the scheme that sums the clients' vectors.
        open_transport: opens the transport to the clients of a round.
        run: the name of the run.
        clients: how many clients there are to choose from.
        members: those that confirmed the sums of the statistics.
        policy: the quorum of a round and the number of its attempts.
        record: stores what the server saw.
    """

    aggregation: SecureAggregation
    open_transport: OpenTransport
    run: str
    clients: int
    members: frozenset[int]
    policy: RoundPolicy
    record: Callable[[RoundAudit], None]

    def __call__(self, number: int, state: ModelState, chosen: IntArray) -> RoundResult:
        """Return the result of a round that starts from this state."""
        able = [int(client) for client in chosen if int(client) in self.members]
        unconfirmed = tuple(
            ClientFailure(int(client), "took no part in the statistics")
            for client in chosen
            if int(client) not in self.members
        )
        least = max(LEAST, self.policy.required(len(chosen)))
        if len(able) < least:
            raise PrivacyError(
                f"round {number}: {len(able)} clients can take part, and a secure sum needs "
                f"{least} here; over two, each would learn the other's change"
            )
        total = self._sum(SumRequest(self.run, number, len(abstain(state))), able, state)
        values = np.asarray(total.values, dtype=np.float64)
        self._check(number, values, len(total.clients))
        merged = combine(state, values)
        failures = tuple(sorted((*unconfirmed, *total.failures), key=lambda gone: gone.client))
        self.record(_audit(number, total, failures, (state, merged)))
        return RoundResult(
            merged, tuple(ClientReport(client) for client in total.clients), failures
        )

    def _sum(self, request: SumRequest, clients: list[int], state: ModelState) -> SumResult:
        transport = self.open_transport(request.round, state)
        return repeat_until_quorum(
            lambda _: self.aggregation(request, clients, transport),
            self.policy.attempts,
            f"round {request.round}",
            shortage=TooFewError,
        )

    def _check(self, number: int, values: FloatArray, clients: int) -> None:
        """Refuse a sum that honest clients cannot have made; the faulty client is unknown."""
        mass, weight, counted = values[-SCALARS:].tolist()
        if counted != clients:
            raise PrivacyError(
                f"round {number}: the sum counts {counted:g} clients where {clients} took part"
            )
        if not (0 <= weight <= 1 + _ROUNDING and mass >= 0):
            raise PrivacyError(
                f"round {number}: the clients claim a weight of {weight:g} together, where all "
                "clients have 1: some client violates the agreement"
            )


def _audit(
    number: int,
    total: SumResult,
    failures: tuple[ClientFailure, ...],
    states: tuple[ModelState, ModelState],
) -> RoundAudit:
    before, after = states
    mass, weight, _ = total.values[-SCALARS:].tolist()
    return RoundAudit(
        number,
        total.clients,
        failures,
        total.attempts,
        weight,
        mass / weight if weight > 0 else 0.0,
        update_norm(before, after),
        digest(after),
    )
