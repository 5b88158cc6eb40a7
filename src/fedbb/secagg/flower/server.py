"""The server of a private run on Flower: keys, the way to its sites, the sums before round 1."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fedbb._util.files import replacing
from fedbb.errors import QuorumError, TooFewError
from fedbb.flower.app.node_registry import Roll
from fedbb.flower.app.run_metadata import Register, describe, load_register, save_register
from fedbb.flower.app.settings import RunSettings
from fedbb.methods import Method
from fedbb.recipes.spec import Recipe
from fedbb.runs.folder import CARDS, RunFolder
from fedbb.runs.metadata import ClientRecord, FederationRecord, set_up_folder
from fedbb.secagg.audit import opening
from fedbb.secagg.flower.keys import Pinned, agree, read_server_keys
from fedbb.secagg.flower.packing import Enclosed
from fedbb.secagg.flower.transport import SiteWire
from fedbb.secagg.masked.server import MaskedSum
from fedbb.secagg.member import Agreement
from fedbb.secagg.secure_aggregation import SecureSum
from fedbb.secagg.simulated_run import AUDIT, ROSTER
from fedbb.secagg.statistics_round import Pledging, Statistics

log = logging.getLogger("fedbb")

Found = TypeVar("Found")


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

        def begin() -> FederationRecord:
            save_register(folder, register)
            statistics = self._sum_statistics(register.run)
            with replacing(folder.file(ROSTER)) as file:
                file.write(pinned.signed)
            audit = opening(recipe.privacy, pinned.roster, self.agreement, statistics)
            enrolment = pinned.enrolment.hex()
            folder.write_json(AUDIT, {**audit, "run": register.run, "enrolment": enrolment})
            log.info("%d sites confirmed the sums of all", len(statistics.confirmations))
            return describe_private(register, statistics.sums.samples, scored)

        set_up_folder(folder, recipe, begin)

    def _sum_statistics(self, run: str) -> Statistics:
        pinned, clients = self.pinned, range(self.clients)
        pledging = Pledging(run, pinned.roster, pinned.identity, self.agreement.terms)
        secure_sum, wire = self._for_statistics(), self.wire("statistics")
        return self.persist("statistics", lambda: pledging(secure_sum, clients, wire))

    def persist(self, what: str, ask: Callable[[], Found]) -> Found:
        """Ask for a sum until enough sites stay to its end, as often as the recipe tries."""
        attempts = self.recipe.defense.attempts
        for attempt in range(1, attempts + 1):
            try:
                return ask()
            except TooFewError as error:
                if attempt == attempts:
                    raise QuorumError(f"{what}: {error}, after {attempts} attempts") from error
                log.warning("%s: %s", what, error)
        raise AssertionError("a recipe allows at least one attempt")

    def _for_statistics(self) -> SecureSum:
        roster, identity = self.pinned.roster, self.pinned.identity
        if self.recipe.privacy == "masked":
            return MaskedSum(roster, identity)
        # Encryption comes with an extra of its own.
        from fedbb.secagg.bfv.server import EncryptedSum

        return EncryptedSum(roster, identity)

    def wire(self, what: str, enclosed: Enclosed | None = None) -> SiteWire:
        """Return the way to the sites for one sum."""
        return SiteWire(self.roll, what, self.recipe.defense.deadline, self.patience, enclosed)


def open_aggregator(settings: RunSettings, method: Method, roll: Roll) -> Aggregator:
    """Return the server's side of a private run, or say what it lacks."""
    recipe = settings.recipe
    pinned = read_server_keys(settings.keys)
    agreement = agree(pinned.roster, recipe, method)
    return Aggregator(recipe, method, roll, pinned, agreement, settings.wait)


def describe_private(
    register: Register, samples: int, scored: Mapping[str, int]
) -> FederationRecord:
    """Return what the server of a private run knows: the number of sites, and of all samples."""
    clients = [ClientRecord(info.client) for info in register.infos]
    return describe(register, scored, clients, samples)
