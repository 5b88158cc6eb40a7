"""Keys of clients and server: identities (Ed25519) and pairwise secrets (X25519, HKDF-SHA256)."""

from __future__ import annotations

import hashlib
import hmac
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
"""Returns this number of random bytes. Tests replace it to make keys reproducible."""

KEY = 32
SIGNATURE = 64


@dataclass(frozen=True, eq=False, repr=False)
class Identity:
    """A private Ed25519 key, which identifies a client or the server. It is never printed."""

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != KEY:
            raise PrivacyError(f"an identity has {KEY} secret bytes, not {len(self.secret)}")

    @classmethod
    def draw(cls, entropy: Entropy = os.urandom) -> Identity:
        """Return a new identity."""
        return cls(entropy(KEY))

    @cached_property
    def public(self) -> bytes:
        """The public key, by which others verify signatures."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        return self._key.sign(message)

    def digest(self, content: bytes | memoryview) -> str:
        """Return a digest of content that cannot be guessed without the private key.

        Its key is derived: the private key itself only signs.
        """
        key = derived_key(self.secret, b"fedbb journal")
        return hmac.new(key, content, hashlib.sha256).hexdigest()

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the owner of this public key signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(public: bytes) -> str:
    """Return 128 bits of the digest of a public key, which people compare by telephone.

    >>> fingerprint(bytes(32))
    '6668-7aad-f862-bd77-6c8f-c18b-8e9f-8e20'
    """
    digest = hashlib.sha256(public).hexdigest()
    return "-".join(digest[start : start + 4] for start in range(0, 32, 4))


def public_key(secret: bytes) -> bytes:
    """Return the public X25519 key of a secret one."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def open_secret(secret: bytes | X25519PrivateKey) -> X25519PrivateKey:
    """Return a secret X25519 key, opened once for use with many public keys."""
    return X25519PrivateKey.from_private_bytes(secret) if isinstance(secret, bytes) else secret


def shared_key(secret: bytes | X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
    """Return the key for a purpose that two parties derive, each from its secret key."""
    try:
        other = X25519PublicKey.from_public_bytes(public)
        common = open_secret(secret).exchange(other)
    except ValueError:
        raise RefusedError("no secret can be agreed on with this public key") from None
    return derived_key(common, purpose)


def derived_key(secret: bytes, purpose: bytes) -> bytes:
    """Return the key for a purpose that HKDF derives from a secret."""
    return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=purpose).derive(secret)
