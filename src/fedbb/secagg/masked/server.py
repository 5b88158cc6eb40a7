"""The masked sum of Bonawitz et al. (2017), driven from the server's side.

Each client hides its vector under a mask of its own and one with every other client. Masks of pairs
cancel in the sum; shares of what masks come from, held by the others, free the sum of the rest,
also of masks with clients that went away. No single party can read a vector, nor t−1 of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from fedbb.errors import PrivacyError
from fedbb.records import ClientFailure
from fedbb.secagg.masked.collector import Collector
from fedbb.secagg.masked.stage_exchange import Gathering, without
from fedbb.secagg.primitives.fixed_point import from_ring
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.messages import Occasion
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.protocol.transport import Wire
from fedbb.secagg.secure_aggregation import Question, Total


@dataclass(frozen=True, eq=False)
class MaskedSum:
    """Sums vectors of any length; whoever goes away before masking has the attempt begun anew."""

    roster: Roster
    identity: Identity
    entropy: Entropy = os.urandom

    def __post_init__(self) -> None:
        if self.identity.public != self.roster.aggregator:
            raise PrivacyError("the roster knows the aggregator by another key")

    def __call__(self, question: Question, clients: Sequence[int], wire: Wire) -> Total:
        """Return the sum over those of the clients who stay to the end."""
        cohort, absences, attempt = tuple(sorted(set(clients))), list[ClientFailure](), 0
        for client in cohort:
            self.roster.key_of(client)
        while True:
            attempt += 1
            occasion = Occasion.draw(question.run, question.round, attempt, self.entropy)
            gathering = Gathering(self.roster, self.identity, occasion, wire, absences)
            gathering.require("keys", cohort, self.roster.least)
            collector = Collector(question, cohort, gathering)
            present = collector.prepare()
            if present == cohort:
                break
            cohort = present
        total, survivors = collector.collect()
        values = from_ring(total, whole=question.whole, scale_bits=self.roster.scale_bits)
        return Total(values, survivors, without(absences, survivors), attempt)
