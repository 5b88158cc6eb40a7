"""What a site and the server hold to take part in secure sums: an identity, and a signed roster.

Both are read anew for every message, and nothing in them comes through Flower: a server that could
hand out rosters could invent parties.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbb.errors import PrivacyError, RunError
from fedbb.methods import Method
from fedbb.recipes.privacy import check_members, least_cohort
from fedbb.recipes.spec import Recipe
from fedbb.secagg.member import Agreement
from fedbb.secagg.primitives.keys import KEY, Identity
from fedbb.secagg.protocol.roster import Roster, read_roster
from fedbb.secagg.simulated_run import agreement_of

SITE_KEY, SITE_PUBLIC = "identity.key", "identity.pub"
SERVER_KEY = "aggregator.key"
ROSTER, ENROLMENT = "roster.json", "enrolment.pub"


@dataclass(frozen=True, eq=False, repr=False)
class Pinned:
    """An identity, the roster as it was signed, and the public key of whoever signed it."""

    identity: Identity
    roster: Roster
    signed: bytes
    enrolment: bytes


def read_site_keys(folder: Path | None, client: int) -> Pinned:
    """Return what a site of this number holds in its folder."""
    if folder is None:
        raise RunError(
            "node config: keys is missing; a private run needs the folder with this site's "
            f"{SITE_KEY}, {ROSTER} and {ENROLMENT}"
        )
    pinned = _read(folder, SITE_KEY)
    if pinned.roster.members.get(client) != pinned.identity.public:
        raise RunError(f"the roster in {folder} knows client {client} by another key, or not")
    return pinned


def read_server_keys(folder: Path | None) -> Pinned:
    """Return what the server holds in the enrolment's folder."""
    if folder is None:
        raise RunError(
            "run config: keys is missing; a private run needs the folder with the server's "
            f"{SERVER_KEY}, {ROSTER} and {ENROLMENT}"
        )
    pinned = _read(folder, SERVER_KEY)
    if pinned.roster.aggregator != pinned.identity.public:
        raise RunError(f"the roster in {folder} knows the server by another key")
    return pinned


def agree(roster: Roster, recipe: Recipe, method: Method) -> Agreement:
    """Return what a recipe and a roster agree on, or refuse a recipe with other terms."""
    clients = len(roster.members)
    said = recipe.data.partition.clients
    if sorted(roster.members) != list(range(clients)) or said not in (None, clients):
        raise RunError(
            f"the recipe divides the data among {said or 'any'} clients from 0, and the roster "
            f"names {', '.join(str(client) for client in sorted(roster.members))}"
        )
    check_members(recipe, method, clients)
    differing = [
        f"{name} is {getattr(roster, name)} there and {value} in the recipe"
        for name, value in terms_in(recipe, method, clients).items()
        if getattr(roster, name) != value
    ]
    if differing:
        raise RunError(
            f"the roster was signed on other terms: {'; '.join(differing)}. Change the recipe, or "
            f"delete {ROSTER} at the server and at every site, and enrol them anew"
        )
    return agreement_of(recipe, method, clients)


def terms_in(recipe: Recipe, method: Method, clients: int) -> dict[str, Any]:
    """Return the terms of a roster that follow from a recipe (its least cohort, R_min, w_max)."""
    agreement = agreement_of(recipe, method, clients)
    return {
        "least": least_cohort(recipe, clients),
        "least_dispersion": float(agreement.terms.floor),
        "max_weight": float(agreement.bounds.max_weight),
    }


def read_identity(path: Path) -> Identity:
    """Return the identity in a file, which nobody but its owner may read."""
    _require(path)
    if path.stat().st_mode & 0o077:
        raise RunError(f"{path} can be read by others; chmod 600 {path}")
    return Identity(_hexadecimal(path))


def read_public(path: Path) -> bytes:
    """Return the public key in a file."""
    _require(path)
    return _hexadecimal(path)


def _read(folder: Path, key: str) -> Pinned:
    identity, enrolment = read_identity(folder / key), read_public(folder / ENROLMENT)
    _require(folder / ROSTER)
    try:
        signed = (folder / ROSTER).read_bytes()
        return Pinned(identity, read_roster(signed, enrolment), signed, enrolment)
    except (OSError, PrivacyError) as error:
        raise RunError(f"{folder / ROSTER} cannot be used: {error}") from error


def _require(path: Path) -> None:
    if not path.exists():
        raise RunError(
            f"{path} is missing; private runs need it, and `fedbb flower enrol` makes it"
        )


def _hexadecimal(path: Path) -> bytes:
    # What a damaged key file holds must not stand in an error that others get to read.
    try:
        content = bytes.fromhex(path.read_text("ascii"))
    except (OSError, ValueError):
        raise RunError(f"{path} is no key that can be read") from None
    if len(content) != KEY:
        raise RunError(f"{path} is no key of {KEY} bytes in hexadecimal")
    return content
