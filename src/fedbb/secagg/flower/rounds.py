"""The rounds of a private run on Flower: sites train and score, and the server sees sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbb.errors import RunError
from fedbb.evaluation.metrics import Scores
from fedbb.flower.app.serde import pack_state
from fedbb.records import ModelState
from fedbb.runs.folder import RunFolder
from fedbb.secagg.audit import RoundSeen, confirmed_in
from fedbb.secagg.flower.packing import Enclosed
from fedbb.secagg.flower.scoring import FIRST, read_scores, sum_length
from fedbb.secagg.flower.server import Aggregator
from fedbb.secagg.flower.transport import SiteWire
from fedbb.secagg.masked.server import MaskedSum
from fedbb.secagg.round import SecureRound
from fedbb.secagg.secure_aggregation import Question
from fedbb.secagg.simulated_run import AUDIT, AuditFile


@dataclass(eq=False)
class PrivateRounds:
    """A run under way: what its server saw so far, and the round that its sites trained last.

    `state_rounds` tells the round each site's memory is from.
    """

    aggregator: Aggregator
    run: str
    audit: AuditFile
    state_rounds: dict[int, int]
    last: int = 0

    @property
    def join(self) -> SecureRound:
        """How a round is made."""
        return SecureRound(
            self._sum(),
            self._reach,
            self.run,
            self.aggregator.clients,
            confirmed_in(self.audit.content),
            self.aggregator.recipe.defense,
            self._note,
        )

    def score(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of the last round's state, pooled; no site tells its own."""
        outline = self.aggregator.roll.outline
        assert outline is not None
        classes, members = len(outline.classes), sorted(confirmed_in(self.audit.content))
        question = Question(self.run, FIRST + self.last, sum_length(classes), whole=True)
        what = f"scoring of round {self.last}"
        wire = self.aggregator.wire(what, Enclosed(pack_state(state), {}))
        total = self.aggregator.persist(what, lambda: self._sum()(question, members, wire))
        scores = read_scores(np.asarray(total.values, np.int64), classes, outline.task)
        self._note_scores(
            list(total.clients), {name: found.samples for name, found in scores.items()}
        )
        return scores

    def _sum(self) -> MaskedSum:
        pinned = self.aggregator.pinned
        return MaskedSum(pinned.roster, pinned.identity)

    def _reach(self, number: int, state: ModelState) -> SiteWire:
        enclosed = Enclosed(pack_state(state), dict(self.state_rounds))
        return self.aggregator.wire(f"round {number}", enclosed)

    def _note(self, seen: RoundSeen) -> None:
        self.audit.note(seen)
        self.last = seen.round
        if self.aggregator.method.needs.client_state:
            # Whoever is not in the sum goes on with what it remembered before.
            self.state_rounds.update(dict.fromkeys(seen.clients, seen.round))

    def _note_scores(self, clients: list[int], samples: dict[str, int]) -> None:
        entry: dict[str, Any] = {"round": self.last, "clients": clients, "samples": samples}
        known = self.audit.content.setdefault("scores", [])
        if entry not in known:
            known.append(entry)
            self.audit.folder.write_json(AUDIT, self.audit.content)


def open_rounds(
    folder: RunFolder, aggregator: Aggregator, run: str, state_rounds: dict[int, int]
) -> PrivateRounds:
    """Return the rounds of the run in this folder, to be begun or gone on with."""
    audit = folder.read_json(AUDIT)
    if audit["roster"] != aggregator.pinned.roster.digest:
        raise RunError(f"{folder.path} was begun under another roster than the one here now")
    return PrivateRounds(aggregator, run, AuditFile(folder, audit), state_rounds)
