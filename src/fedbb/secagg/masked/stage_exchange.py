"""The server's part in one stage of a secure sum: ask, read what comes, note who fell silent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedbb.errors import RefusedError, TooFewError
from fedbb.records import ClientFailure
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.messages import Letter, Occasion, Part, seal, unseal
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.protocol.transport import Wire

Take = Callable[[Letter, bytes], None]
"""Takes in an answer (the letter, and its bytes to be shown to others), or refuses it."""


@dataclass(eq=False)
class Gathering:
    """An attempt as the server sees it: whom it asks on which occasion, and who is gone and why."""

    roster: Roster
    identity: Identity
    occasion: Occasion
    wire: Wire
    absences: list[ClientFailure] = field(default_factory=list)

    def ask_alike(
        self,
        stage: str,
        clients: Iterable[int],
        take: Take,
        facts: Mapping[str, Any],
        parts: Sequence[Part] = (),
    ) -> tuple[int, ...]:
        """Send these clients the same letter; return whose answers were taken, in rising order."""
        letter = self.letter(stage, facts, parts)
        return self.ask(stage, dict.fromkeys(clients, letter), take)

    def ask(self, stage: str, letters: Mapping[int, bytes], take: Take) -> tuple[int, ...]:
        """Send each client its letter; return whose answers were taken, in rising order."""
        taken: set[int] = set()
        refused: dict[int, str] = {}
        for client, data in self.wire.exchange(stage, letters):
            if client in letters and client not in taken and client not in refused:
                try:
                    take(unseal(data, self.roster, stage, client, self.occasion), data)
                    taken.add(client)
                except RefusedError as error:
                    refused[client] = f"its answer in stage {stage} was refused: {error}"
        silent = f"gave no answer in stage {stage}"
        self.absences += [
            ClientFailure(client, refused.get(client, silent))
            for client in sorted(letters.keys() - taken)
        ]
        return tuple(sorted(taken))

    def letter(self, stage: str, facts: Mapping[str, Any], parts: Sequence[Part] = ()) -> bytes:
        """Return a letter of the server's."""
        letter = Letter(self.occasion, stage, AGGREGATOR, facts, parts)
        return seal(letter, self.roster, self.identity)

    def require(self, stage: str, clients: Sequence[int], needed: int) -> None:
        """Stop if too few are left after a stage."""
        if len(clients) < needed:
            told = "; ".join(f"client {gone.client} {gone.reason}" for gone in self.absences)
            raise TooFewError(
                f"{self.occasion}: {len(clients)} clients are left after stage {stage} of a secure "
                f"sum and {needed} are needed ({told}); nothing was revealed"
            )


def without(absences: Sequence[ClientFailure], present: Sequence[int]) -> tuple[ClientFailure, ...]:
    """Return who is not in a sum; some fall silent only after their vector is in it."""
    gone = [absence for absence in absences if absence.client not in present]
    return tuple(sorted(gone, key=lambda absence: absence.client))
