"""One round in private: a secure sum of weighed changes, and nobody's update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedbb.aggregation.validation import update_norm
from fedbb.errors import PrivacyError, QuorumError, TooFewError
from fedbb.records import ClientFailure, ClientReport, FloatArray, IntArray, ModelState
from fedbb.rounds.policy import RoundPolicy
from fedbb.rounds.round import RoundResult
from fedbb.secagg.audit import RoundSeen
from fedbb.secagg.contribution import SCALARS, abstain, combine
from fedbb.secagg.protocol.roster import LEAST
from fedbb.secagg.protocol.transport import Wire
from fedbb.secagg.secure_aggregation import Question, SecureSum, Total
from fedbb.state import digest

Reach = Callable[[int, ModelState], Wire]
"""Opens the way to the clients of a round, who start from this state."""

_ROUNDING = 2.0**-30
"""What rounding to fixed point can add to a sum of weights at most, and much more."""


@dataclass(frozen=True, eq=False)
class SecureRound:
    """The server learns who took part, ΣW·Δ and ΣW; the rest stays with the clients.

    Args:
        secure_sum: how parts are added up unseen.
        reach: the way to the clients.
        run: by which clients tell this run from others.
        clients: how many there are to choose from.
        members: those of them who confirmed the sums of the statistics.
        guard: how much of a round must count, and how often it is tried.
        note: keeps what the server saw.
    """

    secure_sum: SecureSum
    reach: Reach
    run: str
    clients: int
    members: frozenset[int]
    policy: RoundPolicy
    note: Callable[[RoundSeen], None]

    def __call__(self, number: int, state: ModelState, chosen: IntArray) -> RoundResult:
        """Return what a round makes of this state."""
        able = [int(client) for client in chosen if int(client) in self.members]
        strangers = tuple(
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
        total = self._add_up(Question(self.run, number, len(abstain(state))), able, state)
        values = np.asarray(total.values, dtype=np.float64)
        self._check(number, values, len(total.clients))
        merged = combine(state, values)
        absences = tuple(sorted((*strangers, *total.absences), key=lambda absence: absence.client))
        self.note(_seen(number, total, absences, (state, merged)))
        return RoundResult(
            merged, tuple(ClientReport(client) for client in total.clients), absences
        )

    def _add_up(self, question: Question, clients: list[int], state: ModelState) -> Total:
        """Ask for a sum until enough stay to its end, as often as the guard allows."""
        wire = self.reach(question.round, state)
        for attempt in range(1, self.policy.attempts + 1):
            try:
                return self.secure_sum(question, clients, wire)
            except TooFewError as error:
                if attempt == self.policy.attempts:
                    raise QuorumError(
                        f"round {question.round}: {error}, after {attempt} attempts; the rounds "
                        "before it are kept, and the run can be resumed"
                    ) from error
        raise AssertionError("a guard allows at least one attempt")

    def _check(self, number: int, values: FloatArray, clients: int) -> None:
        """Refuse a sum that honest clients cannot have made: nobody can say whose fault it is."""
        mass, weight, counted = values[-SCALARS:].tolist()
        if counted != clients:
            raise PrivacyError(
                f"round {number}: the sum counts {counted:g} clients where {clients} took part"
            )
        if not (0 <= weight <= 1 + _ROUNDING and mass >= 0):
            raise PrivacyError(
                f"round {number}: clients claim a weight of {weight:g} together, where all of "
                "them have 1: one of them does not keep to the agreement"
            )


def _seen(
    number: int,
    total: Total,
    absences: tuple[ClientFailure, ...],
    states: tuple[ModelState, ModelState],
) -> RoundSeen:
    before, after = states
    mass, weight, _ = total.values[-SCALARS:].tolist()
    return RoundSeen(
        number,
        total.clients,
        absences,
        total.attempts,
        weight,
        mass / weight if weight > 0 else 0.0,
        update_norm(before, after),
        digest(after),
    )
