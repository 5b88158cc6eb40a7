"""The server of a private run on Flower: sums before round 1, then a secure sum for each round."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedbb.engine.flower.packing import pack_state
from fedbb.engine.flower.register import CARDS, Register, load_register, save_register
from fedbb.engine.flower.roll import Roll
from fedbb.engine.flower.secure_keys import Pinned, agree, read_server_keys
from fedbb.engine.flower.secure_packing import Enclosed
from fedbb.engine.flower.secure_wire import SiteWire
from fedbb.engine.flower.settings import RunSettings
from fedbb.errors import QuorumError, RunError, TooFewError
from fedbb.files import replacing
from fedbb.methods import Method
from fedbb.privacy.audit import RoundSeen, confirmed_in, opening
from fedbb.privacy.join import PrivateJoin
from fedbb.privacy.masked import MaskedSum
from fedbb.privacy.member import Agreement
from fedbb.privacy.pledging import Pledging, Statistics
from fedbb.privacy.secure_sum import SecureSum
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState
from fedbb.runs import environment
from fedbb.runs.folder import RunFolder
from fedbb.runs.private import AUDIT, ROSTER, AuditFile
from fedbb.runs.workshop import guard_of

log = logging.getLogger("fedbb")


@dataclass(frozen=True, eq=False)
class Aggregator:
    """The server's side: its recipe and method, the sites, its keys, and what all agree on.

    `patience` is for how many seconds clients that are away are waited for when a sum is tried
    again.
    """

    recipe: Recipe
    method: Method
    roll: Roll
    pinned: Pinned
    agreement: Agreement
    patience: float

    @property
    def clients(self) -> int:
        """How many clients the roster names."""
        return len(self.pinned.roster.members)

    def begun_name(self, folder: RunFolder, name: str) -> str:
        """Return the name of a run, which stays that of a set-up that was cut short.

        Sites sum statistics once under a name. Under a new one, and over other sites, the
        difference of the sums would tell a site's own numbers.
        """
        return load_register(folder).run if folder.file(CARDS).exists() else name

    def set_up(self, folder: RunFolder, register: Register, scored: Mapping[str, int]) -> None:
        """Sum the sites' statistics and write what a run needs; the recipe makes it a run."""
        pinned, recipe = self.pinned, self.recipe
        try:
            save_register(folder, register)
            statistics = self._sum_statistics(register.run)
            with replacing(folder.file(ROSTER)) as file:
                file.write(pinned.signed)
            audit = opening(recipe.privacy, pinned.roster, self.agreement, statistics)
            enrolment = pinned.enrolment.hex()
            folder.write_json(AUDIT, {**audit, "run": register.run, "enrolment": enrolment})
            described = describe_private(register, statistics.sums.samples, scored)
            folder.write_json("federation.json", described)
            folder.write_json("environment.json", environment.describe())
            folder.write_json("recipe.json", recipe.model_dump(mode="json"))
        except OSError as error:
            raise RunError(f"{folder.path} cannot be written: {error}") from error
        log.info("%d sites confirmed the sums of all", len(statistics.confirmations))

    def join(self, folder: RunFolder, run: str, dated: dict[int, int]) -> PrivateJoin:
        """Return how rounds are joined; `dated` is told the rounds that sites remember."""
        pinned, audit = self.pinned, folder.read_json(AUDIT)
        if audit["roster"] != pinned.roster.digest:
            raise RunError(f"{folder.path} was begun under another roster than the one here now")
        kept = AuditFile(folder, audit)

        def reach(number: int, state: ModelState) -> SiteWire:
            return self._wire(f"round {number}", Enclosed(pack_state(state), dict(dated)))

        def note(seen: RoundSeen) -> None:
            kept.note(seen)
            if self.method.needs.memory:
                # Whoever is not in the sum goes on with what it remembered before.
                dated.update(dict.fromkeys(seen.clients, seen.round))

        secure_sum, guard = MaskedSum(pinned.roster, pinned.identity), guard_of(self.recipe)
        members = confirmed_in(audit)
        return PrivateJoin(secure_sum, reach, run, self.clients, members, guard, note)

    def _sum_statistics(self, run: str) -> Statistics:
        """Have the statistics summed, as often as the recipe's defense tries a round."""
        pinned, attempts = self.pinned, self.recipe.defense.attempts
        pledging = Pledging(run, pinned.roster, pinned.identity, self.agreement.terms)
        wire = self._wire("statistics")
        for attempt in range(1, attempts + 1):
            try:
                return pledging(self._for_statistics(), range(self.clients), wire)
            except TooFewError as error:
                if attempt == attempts:
                    raise QuorumError(f"statistics: {error}, after {attempts} attempts") from error
                log.warning("statistics: %s", error)
        raise AssertionError("a recipe allows at least one attempt")

    def _for_statistics(self) -> SecureSum:
        roster, identity = self.pinned.roster, self.pinned.identity
        if self.recipe.privacy == "masked":
            return MaskedSum(roster, identity)
        # Encryption comes with an extra of its own.
        from fedbb.privacy.encrypted import EncryptedSum

        return EncryptedSum(roster, identity)

    def _wire(self, what: str, enclosed: Enclosed | None = None) -> SiteWire:
        return SiteWire(self.roll, what, self.recipe.defense.deadline, self.patience, enclosed)


def open_aggregator(settings: RunSettings, method: Method, roll: Roll) -> Aggregator:
    """Return the server's side of a private run, or say what it lacks."""
    recipe = settings.recipe
    if settings.score != "server":
        raise RunError(
            f'score = "{settings.score}" tells the server each site\'s own scores and how much it '
            f'tests on, which privacy = "{recipe.privacy}" is to hide; use score = "server"'
        )
    pinned = read_server_keys(settings.keys)
    agreement = agree(pinned.roster, recipe, method)
    return Aggregator(recipe, method, roll, pinned, agreement, settings.wait)


def describe_private(register: Register, samples: int, scored: Mapping[str, int]) -> dict[str, Any]:
    """Return what the server of a private run knows of its sites: how many, and how much in all."""
    outline = register.outline
    return {
        "data": outline.data,
        "task": str(outline.task),
        "classes": list(outline.classes),
        "train": samples,
        "scored": dict(scored),
        "positives": None,
        "clients": [{"client": card.client} for card in register.cards],
        "notes": [],
    }
