"""The arithmetic of a masked sum, spelled out: RFC 7748, RFC 5869, AES block by block, Shamir.

Shares nothing with the package: X25519 in plain Python, HKDF by hmac, AES by pycryptodome.
"""

from __future__ import annotations

import hashlib
import hmac

from Crypto.Cipher import AES

CURVE = 2**255 - 19
SHAMIR = 2**256 + 297
BASE = (9).to_bytes(32, "little")


def x25519(secret: bytes, public: bytes = BASE) -> bytes:
    """Return secret · public by the Montgomery ladder of RFC 7748, section 5."""
    number = int.from_bytes(secret, "little")
    number &= (1 << 254) - 8
    number |= 1 << 254
    u = int.from_bytes(public, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3 = 1, 0, u, 1
    for place in reversed(range(255)):
        bit = (number >> place) & 1
        if bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a, c * b
        x3, z3 = (da + cb) ** 2 % CURVE, u * (da - cb) ** 2 % CURVE
        e = a * a - b * b
        x2, z2 = a * a * b * b % CURVE, e * (a * a + 121665 * e) % CURVE
        if bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
    return (x2 * pow(z2, -1, CURVE) % CURVE).to_bytes(32, "little")


def hkdf(secret: bytes, info: bytes) -> bytes:
    """Return 32 bytes by RFC 5869 with SHA-256 and no salt."""
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def purpose(
    roster: str, run: str, number: int, attempt: int, token: str, *rest: str | int
) -> bytes:
    """Return what a key is bound to, letter by letter."""
    occasion = f'{{"attempt":{attempt},"round":{number},"run":"{run}","token":"{token}"}}'
    words = [f'"{word}"' if isinstance(word, str) else str(word) for word in rest]
    return f'["fedbb","{roster}",{occasion},{",".join(words)}]'.encode()


def stream(key: bytes, numbers: int) -> list[int]:
    """Return this number of elements of the ring: AES of 0, 1, 2, …, each block two numbers."""
    cipher = AES.new(key, AES.MODE_ECB)
    blocks = b"".join(cipher.encrypt(n.to_bytes(16, "big")) for n in range(numbers // 2 + 1))
    return [int.from_bytes(blocks[8 * n : 8 * n + 8], "little") for n in range(numbers)]


def mask(vector: list[int], plus: list[bytes], minus: list[bytes]) -> bytes:
    """Return a vector under its masks, as it travels."""
    total = [number % 2**64 for number in vector]
    for key in plus:
        total = [(a + b) % 2**64 for a, b in zip(total, stream(key, len(total)), strict=True)]
    for key in minus:
        total = [(a - b) % 2**64 for a, b in zip(total, stream(key, len(total)), strict=True)]
    return b"".join(number.to_bytes(8, "little") for number in total)


def encrypt(key: bytes, nonce: bytes, content: bytes, bound: bytes) -> bytes:
    """Return nonce, ciphertext and tag of AES-256-GCM."""
    cipher = AES.new(key, AES.MODE_GCM, nonce=nonce)
    cipher.update(bound)
    sealed, tag = cipher.encrypt_and_digest(content)
    return nonce + sealed + tag


def share(secret: bytes, chance: list[bytes], point: int) -> bytes:
    """Return the value at a point of the polynomial with these coefficients above the secret."""
    coefficients = [int.from_bytes(part, "big") for part in (secret, *chance)]
    value = sum(c * point**power for power, c in enumerate(coefficients)) % SHAMIR
    return value.to_bytes(33, "big")
