"""Enrolment: an identity for each site, and a roster of all of them that one key signs.

Like certificates, each piece is made where it is missing and never written over. A site that does
not trust the server's staff makes its identity itself and sends only the public half; and the
enrolment key need not lie at the server, which never uses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedbb.errors import RunError
from fedbb.flower.admin.certificates import Piece, write_new
from fedbb.flower.admin.paths import FederationFolder, SiteFolder
from fedbb.recipes.check import check_recipe
from fedbb.recipes.spec import Recipe
from fedbb.secagg.flower.keys import (
    ENROLMENT,
    ROSTER,
    SERVER_KEY,
    SITE_KEY,
    SITE_PUBLIC,
    agree,
    read_identity,
    read_public,
    read_server_keys,
    terms_in,
)
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.roster import Roster, sign_roster

ENROLMENT_KEY = "enrolment.key"


def enrolment_folder(folder: FederationFolder) -> Path:
    """Return where the server's part of the enrolment lies."""
    return folder.path / "enrolment"


def keys_for(folder: FederationFolder, recipe: Recipe) -> dict[str, str]:
    """Return where a run of a private recipe finds the server's keys, if the roster suits it."""
    place = enrolment_folder(folder)
    agree(read_server_keys(place).roster, recipe, check_recipe(recipe))
    return {"keys": str(place.resolve())}


def enrol(folder: FederationFolder, recipe: Recipe, *, keys: bool = True) -> list[Piece]:
    """Make what is missing for private runs on a recipe's terms; tell of each piece.

    Without `keys` sites make their identities themselves. A roster that is there and names other
    keys or terms is refused.
    """
    folder.check()
    if recipe.privacy == "none":
        raise RunError('the recipe says privacy = "none"; there is nothing to enrol for')
    method = check_recipe(recipe)
    place, sites = enrolment_folder(folder), folder.sites()
    pieces = [piece for site in sites for piece in make_identity(site)] if keys else []
    place.mkdir(mode=0o700, exist_ok=True)
    pieces += [
        _key(place / SERVER_KEY, "key of the server in secure sums"),
        *_enrolment_key(place),
    ]
    members = _members(sites)
    aggregator = read_identity(place / SERVER_KEY).public
    if not (place / ROSTER).exists():
        roster = Roster(members, aggregator, **terms_in(recipe, method, len(members)))
        agree(roster, recipe, method)
        pieces.append(_sign(place, roster))
    else:
        pieces.append(Piece(place / ROSTER, f"roster of {len(members)} sites, signed", False))
    known = read_server_keys(place).roster
    if known.members != members:
        raise RunError(
            f"{place / ROSTER} names other keys than the sites have now; delete it, and the copy "
            "at every site, to enrol them anew"
        )
    agree(known, recipe, method)
    return [*pieces, *(piece for site in sites for piece in _pin(place, site))]


def make_identity(site: SiteFolder) -> list[Piece]:
    """Make the identity of a site, unless it or its public half is there."""
    name = site.path.resolve().name
    key, public = site.path / SITE_KEY, site.path / SITE_PUBLIC
    if public.exists() and not key.exists():
        return [Piece(public, f"identity of {name}, made by the site itself", False)]
    piece = _key(key, f"identity of {name} in secure sums")
    found = read_identity(key).public
    new = write_new(public, found.hex().encode() + b"\n", 0o644)
    if read_public(public) != found:
        raise RunError(f"{public} is not the public half of {key}; delete the one that is wrong")
    return [piece, Piece(public, f"its public half, {fingerprint(found)}", new)]


def fingerprint(public: bytes) -> str:
    """Return what people compare by telephone.

    >>> fingerprint(bytes(32))
    '6668-7aad-f862-bd77'
    """
    digest = hashlib.sha256(public).hexdigest()
    return "-".join(digest[start : start + 4] for start in range(0, 16, 4))


def _enrolment_key(place: Path) -> Iterator[Piece]:
    """Make the key that signs, or use the public half of one that is kept elsewhere."""
    key, public = place / ENROLMENT_KEY, place / ENROLMENT
    if public.exists() and not key.exists():
        yield Piece(public, "public key of the enrolment, whose private half is elsewhere", False)
        return
    yield _key(key, "key that signs rosters: best kept away from the server")
    found = read_identity(key).public
    new = write_new(public, found.hex().encode() + b"\n", 0o644)
    yield Piece(public, f"its public half, {fingerprint(found)}", new)


def _members(sites: Sequence[SiteFolder]) -> dict[int, bytes]:
    members: dict[int, bytes] = {}
    for site in sites:
        client = int(site.settings()["client"])
        if client in members:
            raise RunError(f"two sites say that they are client {client}")
        public = site.path / SITE_PUBLIC
        if not public.exists():
            raise RunError(
                f"{public} is missing: the site makes it with `fedbb flower enrol` on its own "
                "folder, and sends it"
            )
        members[client] = read_public(public)
    return members


def _sign(place: Path, roster: Roster) -> Piece:
    key = place / ENROLMENT_KEY
    if not key.exists():
        raise RunError(f"{key} is not here, and without it no roster can be signed")
    enrolment = read_identity(key)
    if enrolment.public != read_public(place / ENROLMENT):
        raise RunError(f"{place / ENROLMENT} is not the public half of {key}")
    new = write_new(place / ROSTER, sign_roster(roster, enrolment), 0o644)
    return Piece(place / ROSTER, f"roster of {len(roster.members)} sites, signed", new)


def _pin(place: Path, site: SiteFolder) -> Iterator[Piece]:
    for name, what in ((ROSTER, "roster"), (ENROLMENT, "public key of the enrolment")):
        content = (place / name).read_bytes()
        new = write_new(site.path / name, content, 0o644)
        told = f"{what} for {site.path.name}"
        if (site.path / name).read_bytes() != content:
            told += f", NOT that of {place}: delete it to have it copied anew"
        yield Piece(site.path / name, told, new)


def _key(path: Path, what: str) -> Piece:
    new = write_new(path, Identity.draw().secret.hex().encode() + b"\n", 0o600)
    return Piece(path, what, new)
