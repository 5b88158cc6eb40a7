"""Private runs of simulated clients: enrolment, the sums before round 1, and the join.

The folder keeps two parts apart: `parties/` is the clients' own, all else is what the server has.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbb._util.files import replacing
from fedbb.errors import RunError
from fedbb.methods import Method
from fedbb.recipes.privacy import check_members, least_cohort
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, ModelState
from fedbb.runs.federation import Federation
from fedbb.runs.folder import RunFolder
from fedbb.secagg.audit import RoundSeen, confirmed_in, opening
from fedbb.secagg.client_secrets import Kept, PartyFiles, SimulatedJournals
from fedbb.secagg.contribution import Bounds
from fedbb.secagg.masked.client import MaskedParty
from fedbb.secagg.masked.server import MaskedSum
from fedbb.secagg.member import Agreement, Member
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.journal import Journal
from fedbb.secagg.protocol.roster import Roster, read_roster, sign_roster
from fedbb.secagg.protocol.transcript import Record, Watched
from fedbb.secagg.protocol.transport import Wire
from fedbb.secagg.round import SecureRound
from fedbb.secagg.secure_aggregation import Party, SecureSum
from fedbb.secagg.simulated import Seat, StatisticsWire, TrainingWire
from fedbb.secagg.statistics import NONCE, terms_of
from fedbb.secagg.statistics_round import Pledge, Pledging
from fedbb.simulation.base import make_client_infos
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.pool import Pool

PARTIES = "parties"
AUDIT = "audit.json"
ROSTER = "roster.json"
KEY = "aggregator.key"


Kind = Callable[[int, Identity, Roster, Journal, str], Party]
"""Makes a client's side of a sum: client, identity, roster, journal, run."""


@dataclass(frozen=True, eq=False)
class Enrolled:
    """A run, its signed roster, the server's own key, and what each client keeps."""

    run: str
    roster: Roster
    aggregator: Identity
    kept: Sequence[Kept]


def enrol(
    folder: RunFolder,
    recipe: Recipe,
    federation: Federation,
    method: Method,
    watch: Record | None = None,
) -> None:
    """Make keys and a roster for the clients, sum their statistics, and write all of it down.

    Until the folder is a run nobody has seen any of it: a crash in here starts afresh.
    """
    infos = make_client_infos(federation.clients, method.weighting)
    check_members(recipe, method, len(infos))
    agreement = agreement_of(recipe, method, len(infos))
    enrolled, signed, enrolment = _draw(recipe, agreement, infos)
    place = folder.file(PARTIES)
    place.mkdir(exist_ok=True)
    (place / "journal").unlink(missing_ok=True)
    secure_sum, kind = _for_statistics(recipe.privacy, enrolled)
    wire = StatisticsWire(_seats(enrolled, _members(infos, agreement), place, kind))
    pledging = Pledging(enrolled.run, enrolled.roster, enrolled.aggregator, agreement.terms)
    statistics = pledging(secure_sum, range(len(infos)), _watched(wire, watch))
    files = PartyFiles(place)
    for client, kept in enumerate(enrolled.kept):
        files.save(client, replace(kept, sums=wire.confirmed.get(client)))
    _write(place / "enrolment.key", enrolment.secret.hex().encode())
    _write(folder.file(KEY), enrolled.aggregator.secret.hex().encode())
    _write(folder.file(ROSTER), signed)
    audit = opening(recipe.privacy, enrolled.roster, agreement, statistics)
    folder.write_json(AUDIT, {**audit, "run": enrolled.run, "enrolment": enrolment.public.hex()})


def open_join(
    folder: RunFolder, watch: Record | None = None
) -> Callable[[Recipe, Inline | Pool], SecureRound]:
    """Return how a run in this folder joins what its clients train; `watch` sees every byte."""

    def join(recipe: Recipe, engine: Inline | Pool) -> SecureRound:
        infos = engine.client_infos()
        audit = folder.read_json(AUDIT)
        agreement = agreement_of(recipe, engine.method, len(infos))
        enrolled = _read(folder, audit, len(infos))
        seats = _seats(enrolled, _members(infos, agreement), folder.file(PARTIES))
        sums = {k: kept.sums for k, kept in enumerate(enrolled.kept) if kept.sums is not None}

        def reach(number: int, state: ModelState) -> Wire:
            wire = TrainingWire(engine, seats, sums, state, number, recipe.seed)
            return _watched(wire, watch)

        return SecureRound(
            MaskedSum(enrolled.roster, enrolled.aggregator),
            reach,
            enrolled.run,
            len(infos),
            confirmed_in(audit),
            recipe.defense,
            AuditFile(folder, audit).note,
        )

    return join


def agreement_of(recipe: Recipe, method: Method, clients: int) -> Agreement:
    """Return what the clients of a recipe agree on with the server."""
    defense = recipe.defense
    terms = terms_of(method.weighting, clients)
    return Agreement(terms, method.merge, Bounds(defense.max_weight, defense.max_norm))


@dataclass(frozen=True, eq=False)
class AuditFile:
    """What the server saw, written down as it sees it and never taken back."""

    folder: RunFolder
    content: dict[str, Any]

    def note(self, seen: RoundSeen) -> None:
        """Add a round; one that a resumed run repeats to the bit is there already."""
        entry = seen.as_json()
        if entry not in self.content["rounds"]:
            self.content["rounds"].append(entry)
            self.folder.write_json(AUDIT, self.content)


def _draw(
    recipe: Recipe, agreement: Agreement, infos: Sequence[ClientInfo]
) -> tuple[Enrolled, bytes, Identity]:
    """Return a new enrolment, its roster as the enrolment key signed it, and that key."""
    aggregator, enrolment = Identity.draw(), Identity.draw()
    kept = [
        Kept(
            Identity.draw(),
            secrets.token_bytes(NONCE),
            Member(info, agreement).statistics(),
        )
        for info in infos
    ]
    roster = Roster(
        {client: party.identity.public for client, party in enumerate(kept)},
        aggregator.public,
        least=least_cohort(recipe, len(infos)),
        least_dispersion=agreement.terms.floor,
        max_weight=agreement.bounds.max_weight,
    )
    enrolled = Enrolled(secrets.token_hex(8), roster, aggregator, kept)
    return enrolled, sign_roster(roster, enrolment), enrolment


def _read(folder: RunFolder, audit: dict[str, Any], clients: int) -> Enrolled:
    try:
        signed = folder.file(ROSTER).read_bytes()
        roster = read_roster(signed, bytes.fromhex(audit["enrolment"]))
        aggregator = Identity(bytes.fromhex(folder.file(KEY).read_text("ascii")))
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"the roster of {folder.path} cannot be read: {error}") from error
    files = PartyFiles(folder.file(PARTIES))
    return Enrolled(
        str(audit["run"]), roster, aggregator, [files.load(client) for client in range(clients)]
    )


def _watched(wire: Wire, watch: Record | None) -> Wire:
    return wire if watch is None else Watched(wire, watch)


def _members(infos: Sequence[ClientInfo], agreement: Agreement) -> list[Member]:
    return [Member(info, agreement) for info in infos]


def _seats(
    enrolled: Enrolled, members: Sequence[Member], place: Path, kind: Kind = MaskedParty
) -> dict[int, Seat]:
    """Return every client with its party in sums of one kind."""
    journals = SimulatedJournals(place / "journal")
    roster, run = enrolled.roster, enrolled.run

    def seat(client: int, kept: Kept) -> Seat:
        party = kind(client, kept.identity, roster, journals.of(client), run)
        pledge = Pledge(run, client, roster, kept.identity, kept.nonce, kept.declared)
        return Seat(members[client], party, pledge)

    return {client: seat(client, kept) for client, kept in enumerate(enrolled.kept)}


def _for_statistics(privacy: str, enrolled: Enrolled) -> tuple[SecureSum, Kind]:
    """Return the sum that statistics go through, and the clients' side of it."""
    if privacy == "masked":
        return MaskedSum(enrolled.roster, enrolled.aggregator), MaskedParty
    # Encryption comes with an extra of its own.
    from fedbb.secagg.bfv.client import EncryptedParty
    from fedbb.secagg.bfv.server import EncryptedSum

    return EncryptedSum(enrolled.roster, enrolled.aggregator), EncryptedParty


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with replacing(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
