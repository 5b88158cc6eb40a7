import itertools
import os
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.shamir import PRIME, SHARE, combine, read_share, recover, split
from helpers.secagg_clients import counted

SECRETS = st.binary(min_size=32, max_size=32)


@settings(deadline=None, max_examples=30)
@given(SECRETS, st.integers(2, 9), st.data())
def test_any_shares_that_are_enough_give_the_secret(
    secret: bytes, needed: int, data: st.DataObject
) -> None:
    holders = [3, 0, 9, 14, 5, 77, 6, 8, 20, 1]
    shares = split(secret, needed, holders, os.urandom)
    some = data.draw(st.permutations(holders))[:needed]
    assert combine({holder: shares[holder] for holder in some}) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_the_least_and_the_largest_secret_come_back(secret: bytes) -> None:
    shares = split(secret, 4, range(5), os.urandom)
    for some in itertools.combinations(range(5), 4):
        assert combine({holder: shares[holder] for holder in some}) == secret


def test_the_prime_is_one() -> None:
    """Miller and Rabin with forty bases; and none lies between it and 2^256."""

    def is_prime(number: int) -> bool:
        odd, twos = number - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in range(2, 42):
            value = pow(base, odd, number)
            if value not in (1, number - 1) and not any(
                (value := value * value % number) == number - 1 for _ in range(twos - 1)
            ):
                return False
        return True

    assert [number for number in range(2**256 + 1, PRIME + 1, 2) if is_prime(number)] == [PRIME]


def test_shares_too_few_are_consistent_with_every_secret() -> None:
    """Through t−1 shares and any secret there is a polynomial: it gives those very shares."""
    needed, holders = 4, range(6)
    shares = split(os.urandom(32), needed, holders, os.urandom)
    known = {holder: read_share(shares[holder]) for holder in range(needed - 1)}
    for other in (bytes(32), b"\xff" * 32, os.urandom(32)):
        points = {0: int.from_bytes(other, "big")} | {h + 1: value for h, value in known.items()}
        made = {h: _interpolate(points, h + 1).to_bytes(SHARE, "big") for h in holders}
        assert {h: read_share(made[h]) for h in known} == known
        assert combine({h: made[h] for h in (1, 3, 4, 5)}) == other


def _interpolate(points: dict[int, int], at: int) -> int:
    total = 0
    for one, value in points.items():
        for two in points:
            if two != one:
                value = value * (at - two) * pow(one - two, -1, PRIME) % PRIME
        total += value
    return total % PRIME


@pytest.mark.parametrize("holders", [(1,), (1, 2), (2, 4)])
def test_in_a_small_field_every_secret_gives_the_same_shares_equally_often(
    holders: tuple[int, ...],
) -> None:
    """All polynomials of degree 2 modulo 7: up to two shares are spread alike for each secret."""
    field, needed = 7, 3
    seen = []
    for secret in range(field):
        chances = itertools.product(range(field), repeat=needed - 1)
        seen.append(
            Counter(
                tuple((secret + a * point + b * point**2) % field for point in holders)
                for a, b in chances
            )
        )
    assert all(counter == seen[0] for counter in seen)
    assert set(seen[0].values()) == {field ** (needed - 1 - len(holders))}


def test_with_as_many_as_are_needed_the_small_field_tells_the_secret() -> None:
    field = 7
    told: dict[tuple[int, ...], set[int]] = {}
    for secret, a, b in itertools.product(range(field), repeat=3):
        shares = tuple((secret + a * point + b * point**2) % field for point in (1, 2, 3))
        told.setdefault(shares, set()).add(secret)
    assert all(len(secrets) == 1 for secrets in told.values())


def test_each_coefficient_is_drawn_anew() -> None:
    drawn: list[int] = []

    def entropy(number: int) -> bytes:
        drawn.append(number)
        return counted(f"{len(drawn)}")(number)

    split(bytes(32), 5, range(6), entropy)
    assert drawn == [64] * 4


@pytest.mark.parametrize("share", [b"", bytes(32), bytes(34), PRIME.to_bytes(33, "big")])
def test_what_is_no_share_is_refused(share: bytes) -> None:
    with pytest.raises(RefusedError, match="is invalid"):
        combine({0: share, 1: bytes(33)})


def test_shares_that_give_no_secret_are_refused() -> None:
    """Both say the polynomial is the constant 2^256, which no 32 bytes are."""
    share = (2**256).to_bytes(33, "big")
    with pytest.raises(RefusedError, match="do not belong together"):
        combine({0: share, 1: share})


@pytest.mark.parametrize(
    ("holders", "needed", "liars"),
    [(5, 4, (0,)), (10, 7, (0, 3, 9)), (50, 34, (1, 5, 33, 40)), (4, 4, ())],
)
def test_a_secret_is_recovered_in_spite_of_false_shares_and_the_liars_are_named(
    holders: int, needed: int, liars: tuple[int, ...]
) -> None:
    secret = counted("secret")(32)
    shares = split(secret, needed, range(holders), counted("coefficients"))
    for liar in liars:
        shares[liar] = ((read_share(shares[liar]) + liar + 1) % PRIME).to_bytes(SHARE, "big")
    found, named = recover(shares, needed, lambda guess: guess == secret)
    assert (found, named) == (secret, liars)


def test_a_secret_with_too_many_false_shares_is_given_up() -> None:
    shares = split(bytes(32), 4, range(5), os.urandom)
    shares |= {0: b"\xff" * SHARE, 1: bytes(SHARE)}
    assert recover(shares, 4, lambda guess: guess == bytes(32)) == (None, ())
