"""Keys that follow from the secrets of an attempt: of own masks, of pairs' masks, of shares."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.keys import derived_key, shared_key
from fedbb.secagg.protocol.messages import Occasion, purpose
from fedbb.secagg.protocol.roster import Roster

NONCE = 12
TAG = 16


def own_key(roster: Roster, occasion: Occasion, client: int, seed: bytes) -> bytes:
    """Return the key of the mask that is a client's alone."""
    return derived_key(seed, purpose(roster, occasion, "own mask", client))


def pair_key(
    roster: Roster, occasion: Occasion, mine: tuple[int, bytes], other: tuple[int, bytes]
) -> bytes:
    """Return the key of the mask that two clients share: one adds it, the other takes it away.

    Each is given as client and key, the first one's key secret, the second one's public.
    """
    clients = sorted((mine[0], other[0]))
    return shared_key(mine[1], other[1], purpose(roster, occasion, "pair mask", *clients))


def commitment(roster: Roster, occasion: Occasion, client: int, seed: bytes) -> bytes:
    """Return what ties a client to its seed without showing it."""
    return hashlib.sha256(purpose(roster, occasion, "seed", client) + seed).digest()


def seal_share(secret: bytes, public: bytes, bound: bytes, share: bytes, nonce: bytes) -> bytes:
    """Return a share as only the owner of the public key can read it, for one purpose only."""
    return nonce + AESGCM(shared_key(secret, public, bound)).encrypt(nonce, share, bound)


def open_share(secret: bytes, public: bytes, bound: bytes, sealed: bytes) -> bytes:
    """Return the share that the owner of the public key sealed for this purpose, or refuse it."""
    try:
        key = shared_key(secret, public, bound)
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], bound)
    except InvalidTag:
        raise RefusedError("a share was not sealed by its giver, for this attempt") from None
