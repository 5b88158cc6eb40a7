"""Shamir's secret sharing of 32-byte secrets: any t shares give the secret, t−1 reveal nothing.

The field is that of the integers modulo the prime 2^256 + 297, the smallest one above every
secret. Client k's share is the value at k + 1 of a polynomial of degree t−1 with random
coefficients, whose constant term is the secret.

pycryptodome also has Shamir's scheme (16-byte blocks, GF(2^128)), written for a few shares: it
works bit by bit in Python and recomputes the holders' weights for each secret. A sum over 50
clients takes 200 splits and 100 combinations of such blocks, at 36 and 81 ms each: twice the time
of all masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.keys import Entropy

PRIME = 2**256 + 297
MOST_SUBSETS = 5000
"""Subsets of shares that are tried before a secret is given up.

Of 50 holders with threshold 34, five false shares leave one subset in 490 without any of them.
"""

SECRET = 32
SHARE = 33


def split(
    secret: bytes, threshold: int, holders: Sequence[int], entropy: Entropy
) -> dict[int, bytes]:
    """Return a share of a secret for each holder; `threshold` of them recover it."""
    # 64 random bytes modulo the prime are as good as uniform: the bias is below 2^-250.
    random = [int.from_bytes(entropy(64), "big") % PRIME for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "big"), *random]
    return {
        holder: _value_at(holder + 1, coefficients).to_bytes(SHARE, "big") for holder in holders
    }


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of these shares; there must be as many as the threshold."""
    holders = tuple(sorted(shares))
    pairs = zip(_weights_at_zero(holders), holders, strict=True)
    secret = sum(weight * read_share(shares[holder]) for weight, holder in pairs) % PRIME
    if secret >= 2 ** (8 * SECRET):
        raise RefusedError("shares of a secret do not belong together")
    return secret.to_bytes(SECRET, "big")


def recover(
    shares: Mapping[int, bytes], threshold: int, is_right: Callable[[bytes], bool]
) -> tuple[bytes | None, tuple[int, ...]]:
    """Return a secret from shares of which some may be false, and who gave a false one.

    One false share is always found. Several that were chosen together may cancel out in a subset;
    the secret is right then too, but shares outside of that subset seem false.

    Args:
        shares: a share of each holder, at least as many as the threshold; first ones first.
        threshold: how many right shares recover the secret.
        is_right: whether a secret is the one that its owner committed to.

    Returns:
        The secret, None if no subset that was tried gives it, and the holders whose shares do not
        fit the others, if one of them was in the way.
    """
    for tried, holders in enumerate(_subsets(list(shares), threshold)):
        try:
            secret = combine({holder: shares[holder] for holder in holders})
        except RefusedError:
            continue
        if is_right(secret):
            right = {holder: shares[holder] for holder in holders}
            others = [holder for holder in sorted(shares) if holder not in right] if tried else []
            return secret, tuple(k for k in others if not _fits(right, k, shares[k]))
    return None, ()


def _subsets(holders: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield subsets of the holders: all of them, or random ones if there are too many."""
    if math.comb(len(holders), size) <= MOST_SUBSETS:
        yield from combinations(holders, size)
        return
    yield tuple(holders[:size])
    # Which subsets are tried is not a secret, and equal messages give equal results.
    rng = np.random.default_rng(len(holders))
    for _ in range(MOST_SUBSETS):
        yield tuple(sorted(rng.choice(holders, size, replace=False).tolist()))


def _fits(right: Mapping[int, bytes], holder: int, share: bytes) -> bool:
    """Tell whether a share is of the polynomial through the right ones."""
    # In place of any of them it gives the same constant term.
    replaced = {k: right[k] for k in sorted(right)[1:]} | {holder: share}
    try:
        return combine(replaced) == combine(right)
    except RefusedError:
        return False


def read_share(share: bytes) -> int:
    """Return a share as an element of the field."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE or value >= PRIME:
        raise RefusedError("the share of a secret is invalid")
    return value


def _value_at(point: int, coefficients: Sequence[int]) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value


@lru_cache(maxsize=8)  # the secrets of all clients are combined from the same holders
def _weights_at_zero(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Return the Lagrange coefficients of the holders' shares at zero."""
    weights = []
    for one in holders:
        numerator = denominator = 1
        for two in holders:
            if two != one:
                numerator = numerator * (two + 1) % PRIME
                denominator = denominator * (two - one) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)
