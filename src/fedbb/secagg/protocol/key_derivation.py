"""Keys derived from the secrets of an attempt: of self masks, of pairwise masks, of shares."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.keys import derived_key, shared_key
from fedbb.secagg.protocol.canonical import canonical_json
from fedbb.secagg.protocol.messages import AttemptId
from fedbb.secagg.protocol.roster import Roster

NONCE = 12
TAG = 16


def key_purpose(roster: Roster, attempt_id: AttemptId, use: str, *details: str | int) -> bytes:
    """Return the context that a key or ciphertext is bound to, so that it has no other use."""
    return _attempt_purpose(roster.digest, attempt_id) + canonical_json([use, *details])[1:]


@lru_cache(maxsize=4)
def _attempt_purpose(roster: str, attempt_id: AttemptId) -> bytes:
    """Return the beginning of every purpose in an attempt: a JSON array that is not closed."""
    return canonical_json(["fedbb", roster, asdict(attempt_id)])[:-1] + b","


def self_mask_key(roster: Roster, attempt_id: AttemptId, client: int, seed: bytes) -> bytes:
    """Return the key of a client's self mask."""
    return derived_key(seed, key_purpose(roster, attempt_id, "own mask", client))


def pair_mask_key(
    roster: Roster,
    attempt_id: AttemptId,
    view: str,
    mine: tuple[int, bytes | X25519PrivateKey],
    other: tuple[int, bytes],
) -> bytes:
    """Return the key of the mask of two clients: one adds the mask, the other subtracts it.

    Under different views the two derive different keys, and their masks do not cancel.

    Args:
        roster: the roster of both clients.
        attempt_id: the attempt that the key is for.
        view: the digest of what the client of the mask received, see `fedbb.secagg.view`.
        mine: one client and its secret key.
        other: the other client and its public key.

    Returns:
        32 bytes, the same for both clients if their views are the same.
    """
    first, second = sorted((mine[0], other[0]))
    purpose = key_purpose(roster, attempt_id, "pair mask", view, first, second)
    return shared_key(mine[1], other[1], purpose)


def seed_commitment(roster: Roster, attempt_id: AttemptId, client: int, seed: bytes) -> bytes:
    """Return a commitment to the seed of a client's self mask, which does not reveal it."""
    return hashlib.sha256(key_purpose(roster, attempt_id, "seed", client) + seed).digest()


def encrypt_share(
    secret: bytes | X25519PrivateKey, public: bytes, purpose: bytes, share: bytes, nonce: bytes
) -> bytes:
    """Return a share encrypted for the owner of the public key, bound to one purpose."""
    return nonce + AESGCM(shared_key(secret, public, purpose)).encrypt(nonce, share, purpose)


def decrypt_share(
    secret: bytes | X25519PrivateKey, public: bytes, purpose: bytes, encrypted: bytes
) -> bytes:
    """Return the share that the owner of the public key encrypted for this purpose."""
    try:
        key = shared_key(secret, public, purpose)
        return AESGCM(key).decrypt(encrypted[:NONCE], encrypted[NONCE:], purpose)
    except InvalidTag:
        raise RefusedError("a share was not encrypted by its owner for this attempt") from None
