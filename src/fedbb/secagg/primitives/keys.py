"""Keys of the parties: who one is (Ed25519), and what two of them share (X25519, HKDF-SHA256)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedbb.errors import PrivacyError, RefusedError

Entropy = Callable[[int], bytes]
"""Gives so many random bytes: the one seam through which tests make them known ones."""

KEY = 32
SIGNATURE = 64


@dataclass(frozen=True, eq=False, repr=False)
class Identity:
    """A private Ed25519 key: whoever holds it is this party. Never printed."""

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != KEY:
            raise PrivacyError(f"an identity is {KEY} secret bytes, not {len(self.secret)}")

    @classmethod
    def draw(cls, entropy: Entropy = os.urandom) -> Identity:
        """Return a new identity."""
        return cls(entropy(KEY))

    @cached_property
    def public(self) -> bytes:
        """The public key, by which others know this party."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return this party's signature under a message."""
        return self._key.sign(message)

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Tell whether the owner of this public key signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_of(secret: bytes) -> bytes:
    """Return the public X25519 key of a secret one."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def shared_key(secret: bytes, public: bytes, purpose: bytes) -> bytes:
    """Return the key that one party's secret and another's public key make for a purpose."""
    try:
        other = X25519PublicKey.from_public_bytes(public)
        common = X25519PrivateKey.from_private_bytes(secret).exchange(other)
    except ValueError:
        raise RefusedError("a public key is none that a secret can be agreed on with") from None
    return derived_key(common, purpose)


def derived_key(secret: bytes, purpose: bytes) -> bytes:
    """Return the key for a purpose that follows from a secret."""
    return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=purpose).derive(secret)
