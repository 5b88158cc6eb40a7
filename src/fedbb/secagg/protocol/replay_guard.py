"""What a party decides once and for all, whoever asks again and however often it restarts."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.fixed_point import RingArray, as_bytes
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.canonical import spell
from fedbb.secagg.protocol.journal import Journal
from fedbb.secagg.protocol.messages import Occasion


@dataclass(frozen=True, eq=False, repr=False)
class Decisions:
    """A client's decisions, each in its journal before it is acted on."""

    client: int
    identity: Identity
    journal: Journal

    def begin(self, occasion: Occasion) -> None:
        """Take part in an attempt, once."""
        if self.journal.note(f"begun {occasion.token}", str(occasion)) is not None:
            raise RefusedError(f"client {self.client} has begun this attempt before: {occasion}")

    def agree(self, occasion: Occasion, survivors: Sequence[int]) -> None:
        """Agree to a list of survivors, the only one in an attempt."""
        decision = _digest(survivors)
        if self.journal.note(f"agreed {occasion.token}", decision) not in (None, decision):
            raise RefusedError(f"client {self.client} has agreed to another list of survivors")

    def reveal(self, occasion: Occasion, survivors: Sequence[int], *, same: bool) -> None:
        """Help to reveal a sum, once in an attempt, and over one set of survivors in a round.

        `same` tells that all survivors signed that their vectors are those of attempts before:
        then a second attempt reveals what is known already.
        """
        decision = _digest(survivors)
        if self.journal.note(f"revealed {occasion.token}", decision) is not None:
            raise RefusedError(f"client {self.client} has unmasked this before: {occasion}")
        before = self.journal.note(_about("revealed", occasion), decision)
        if before is not None and not (before == decision and same):
            raise RefusedError(
                f"client {self.client} has unmasked round {occasion.round} of {occasion.run} "
                "before, and does so again only for the same survivors and vectors"
            )

    def is_same(self, occasion: Occasion, vector: RingArray) -> bool:
        """Tell whether this client has given no other vector in this round."""
        # Keyed, since a digest of a few small whole numbers could be guessed.
        digest = hmac.new(self.identity.secret, as_bytes(vector), hashlib.sha256).hexdigest()
        if self.journal.note(_about("vector", occasion), digest) not in (None, digest):
            self.journal.note(_about("changed", occasion), "yes")
        return self.journal.seen(_about("changed", occasion)) is None


def _digest(clients: Sequence[int]) -> str:
    return hashlib.sha256(spell(list(clients))).hexdigest()


def _about(decision: str, occasion: Occasion) -> str:
    """Return the journal's key of a decision about all attempts at a round."""
    return f"{decision} in round {occasion.round} of {occasion.run}"
