"""Enrolment: an identity for each site, and a roster of all sites that one key signs.

Like certificates, each file is created if it is missing and never overwritten. A site that does
not trust the server's staff creates its identity itself and sends only the public key. The
enrolment key need not be stored at the server, which never uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedbb.errors import RunError
from fedbb.flower.admin.certificates import Piece, write_new
from fedbb.flower.admin.paths import FederationFolder, SiteFolder
from fedbb.recipes.check import bind_teacher, check_recipe
from fedbb.recipes.privacy import agree, roster_terms
from fedbb.recipes.spec import Recipe
from fedbb.secagg.client_secrets import (
    ENROLMENT,
    ROSTER,
    SERVER_KEY,
    SITE_KEY,
    SITE_PUBLIC,
    read_identity,
    read_public,
    read_server_keys,
)
from fedbb.secagg.primitives.keys import Identity, fingerprint
from fedbb.secagg.protocol.roster import Roster, sign_roster

ENROLMENT_KEY = "enrolment.key"


def enrolment_folder(folder: FederationFolder) -> Path:
    """Return the folder of the server's part of the enrolment."""
    return folder.path / "enrolment"


def keys_for(folder: FederationFolder, recipe: Recipe) -> dict[str, str]:
    """Return the setting with the server's keys for a private run; check the roster's terms."""
    place = enrolment_folder(folder)
    agree(read_server_keys(place).roster, recipe, check_recipe(recipe))
    return {"keys": str(place.resolve())}


def enrol(folder: FederationFolder, recipe: Recipe, *, keys: bool = True) -> list[Piece]:
    """Create the missing files for private runs of a recipe.

    Args:
        folder: the federation.
        recipe: its privacy, method and defense set the terms of the roster.
        keys: create the identities of sites too; otherwise each site creates its own.

    Returns:
        Each file, and whether it is new.

    Raises:
        RunError: if there is a roster with other keys or terms.
    """
    folder.check()
    if recipe.privacy == "none":
        raise RunError('the recipe has privacy = "none"; there is nothing to enrol for')
    recipe = bind_teacher(recipe)
    method = check_recipe(recipe)
    place, sites = enrolment_folder(folder), folder.sites()
    pieces = [piece for site in sites for piece in make_identity(site)] if keys else []
    place.mkdir(mode=0o700, exist_ok=True)
    pieces += [_key(place / SERVER_KEY, "key of the server in secure sums")]
    pieces += _enrolment_key(place)
    members = _members(sites)
    aggregator = read_identity(place / SERVER_KEY).public
    if not (place / ROSTER).exists():
        roster = Roster(members, aggregator, **roster_terms(recipe, method, len(members)))
        agree(roster, recipe, method)
        pieces.append(_sign(place, roster))
    else:
        pieces.append(Piece(place / ROSTER, f"roster of {len(members)} sites, signed", False))
    known = read_server_keys(place).roster
    if known.members != members:
        raise RunError(
            f"{place / ROSTER} names other keys than the sites have now; delete it, and the copy "
            "at every site, to enrol them again"
        )
    agree(known, recipe, method)
    return [*pieces, *(piece for site in sites for piece in _pin(place, site))]


def make_identity(site: SiteFolder) -> list[Piece]:
    """Create the identity of a site, unless it or its public key exists."""
    name = site.path.resolve().name
    key, public = site.path / SITE_KEY, site.path / SITE_PUBLIC
    if public.exists() and not key.exists():
        return [Piece(public, f"identity of {name}, created by the site itself", False)]
    piece = _key(key, f"identity of {name} in secure sums")
    found = read_identity(key).public
    new = write_new(public, found.hex().encode() + b"\n", 0o644)
    if read_public(public) != found:
        raise RunError(f"{public} is not the public key of {key}; delete the one that is wrong")
    return [piece, Piece(public, f"its public key, {fingerprint(found)}", new)]


def _enrolment_key(place: Path) -> Iterator[Piece]:
    """Create the signing key, or use the public key of one that is stored elsewhere."""
    key, public = place / ENROLMENT_KEY, place / ENROLMENT
    if public.exists() and not key.exists():
        yield Piece(
            public, "public key of the enrolment; the private key is stored elsewhere", False
        )
        return
    yield _key(key, "key that signs rosters; do not store it at the server")
    found = read_identity(key).public
    new = write_new(public, found.hex().encode() + b"\n", 0o644)
    yield Piece(public, f"its public key, {fingerprint(found)}", new)


def _members(sites: Sequence[SiteFolder]) -> dict[int, bytes]:
    members: dict[int, bytes] = {}
    for site in sites:
        client = int(site.settings()["client"])
        if client in members:
            raise RunError(f"two sites have the number {client}")
        public = site.path / SITE_PUBLIC
        if not public.exists():
            raise RunError(
                f"{public} is missing: the site creates it with `fedbb flower enrol` on its own "
                "folder, and sends it"
            )
        members[client] = read_public(public)
    return members


def _sign(place: Path, roster: Roster) -> Piece:
    key = place / ENROLMENT_KEY
    if not key.exists():
        raise RunError(f"{key} is missing; without it no roster can be signed")
    enrolment = read_identity(key)
    if enrolment.public != read_public(place / ENROLMENT):
        raise RunError(f"{place / ENROLMENT} is not the public key of {key}")
    new = write_new(place / ROSTER, sign_roster(roster, enrolment), 0o644)
    return Piece(place / ROSTER, f"roster of {len(roster.members)} sites, signed", new)


def _pin(place: Path, site: SiteFolder) -> Iterator[Piece]:
    for name, what in ((ROSTER, "roster"), (ENROLMENT, "public key of the enrolment")):
        content = (place / name).read_bytes()
        new = write_new(site.path / name, content, 0o644)
        described = f"{what} for {site.path.name}"
        if (site.path / name).read_bytes() != content:
            described += f", NOT that of {place}: delete it to copy it again"
        yield Piece(site.path / name, described, new)


def _key(path: Path, what: str) -> Piece:
    new = write_new(path, Identity.draw().secret.hex().encode() + b"\n", 0o600)
    return Piece(path, what, new)
