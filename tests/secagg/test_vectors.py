"""Frozen bytes: what fixed keys make of a fixed vector, worked out by the slow reference once."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from fedbb.secagg.primitives.fixed_point import add_masks
from fedbb.secagg.primitives.keys import public_key, shared_key
from fedbb.secagg.primitives.shamir import split
from fedbb.secagg.protocol.key_derivation import (
    decrypt_share,
    encrypt_share,
    key_purpose,
    pair_mask_key,
    self_mask_key,
)
from fedbb.secagg.protocol.messages import AttemptId, verify_message
from helpers.secagg_clients import (
    LocalTransport,
    counted,
    make_roster,
    masked_client,
    masked_sum,
    request,
)
from reference import masking

FROZEN = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))
ROSTER = make_roster(3)
ATTEMPT_ID = AttemptId("run", 1, 1, "00112233445566778899aabbccddeeff")
SECRETS = [hashlib.sha256(f"secret {client}".encode()).digest() for client in range(3)]
SEED = hashlib.sha256(b"seed").digest()
VIEW = hashlib.sha256(b"view").hexdigest()
VECTOR = [0, 1, -1, 2**40, -(2**61), 3, 12345678901234567]


def info(*rest: str | int) -> bytes:
    return masking.purpose(ROSTER.digest, "run", 1, 1, ATTEMPT_ID.token, *rest)


def worked_out() -> dict[str, str]:
    """Return the frozen bytes by the reference: client 1's of three."""
    publics = [masking.x25519(secret) for secret in SECRETS]
    pair = {
        other: masking.hkdf(
            masking.x25519(SECRETS[1], publics[other]),
            info("pair mask", VIEW, *sorted((1, other))),
        )
        for other in (0, 2)
    }
    own = masking.hkdf(SEED, info("own mask", 1))
    bound = info("share", 1, 2)
    key = masking.hkdf(masking.x25519(SECRETS[1], publics[2]), bound)
    chance = counted("chance")(64)
    return {
        "public": publics[1].hex(),
        "pair_key": pair[2].hex(),
        "mask": masking.mask([0] * 5, [pair[2]], []).hex(),
        "masked": masking.mask(VECTOR, [own, pair[2]], [pair[0]]).hex(),
        "sealed": masking.encrypt(key, bytes(range(12)), b"a share of something", bound).hex(),
        "share": masking.share(SEED, [chance], 3).hex(),
    }


def test_the_reference_gives_the_frozen_bytes() -> None:
    assert worked_out() == FROZEN["bytes"]


def test_the_rosters_digest_is_frozen() -> None:
    assert ROSTER.digest == FROZEN["roster"]


def test_x25519_of_the_reference_is_that_of_rfc_7748() -> None:
    """The first vector of section 5.2."""
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    result = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert masking.x25519(scalar, point).hex() == result


def test_a_public_key_and_a_pairs_key_are_the_frozen_ones() -> None:
    assert public_key(SECRETS[1]).hex() == FROZEN["bytes"]["public"]
    for mine, other in ((1, 2), (2, 1)):
        key = pair_mask_key(
            ROSTER, ATTEMPT_ID, VIEW, (mine, SECRETS[mine]), (other, public_key(SECRETS[other]))
        )
        assert key.hex() == FROZEN["bytes"]["pair_key"]


def test_a_mask_is_the_frozen_one() -> None:
    vector = np.zeros(5, dtype=np.uint64)
    add_masks(vector, [bytes.fromhex(FROZEN["bytes"]["pair_key"])], [])
    assert vector.tobytes().hex() == FROZEN["bytes"]["mask"]


def test_a_masked_vector_is_the_frozen_one() -> None:
    vector = np.array(VECTOR).view(np.uint64)
    keys = {
        other: pair_mask_key(
            ROSTER, ATTEMPT_ID, VIEW, (1, SECRETS[1]), (other, public_key(SECRETS[other]))
        )
        for other in (0, 2)
    }
    add_masks(vector, [self_mask_key(ROSTER, ATTEMPT_ID, 1, SEED), keys[2]], [keys[0]])
    assert vector.tobytes().hex() == FROZEN["bytes"]["masked"]


def test_a_sealed_share_is_the_frozen_one_and_opens() -> None:
    bound = key_purpose(ROSTER, ATTEMPT_ID, "share", 1, 2)
    sealed = encrypt_share(
        SECRETS[1], public_key(SECRETS[2]), bound, b"a share of something", bytes(range(12))
    )
    assert sealed.hex() == FROZEN["bytes"]["sealed"]
    assert (
        decrypt_share(SECRETS[2], public_key(SECRETS[1]), bound, sealed) == b"a share of something"
    )


def test_a_share_is_the_frozen_one() -> None:
    """Client 2's share is the value at 3; the one random coefficient is known."""
    shares = split(SEED, 2, range(3), counted("chance"))
    assert shares[2].hex() == FROZEN["bytes"]["share"]


@pytest.mark.parametrize("client", range(3))
def test_a_whole_sums_masked_messages_are_what_the_reference_works_out(client: int) -> None:
    """From the parties' own keys, as drawn from known bytes."""
    parties = {c: masked_client(c, ROSTER) for c in range(3)}
    transport = LocalTransport(parties, {c: np.arange(6, dtype=np.int64) - c for c in range(3)})
    secrets: dict[int, tuple[bytes, bytes]] = {}

    def watch(stage: str, asked: int, message: bytes) -> bytes:
        if stage == "masked":
            attempt = parties[asked].attempt
            assert attempt is not None
            secrets[asked] = (attempt.secrets.second, attempt.seed)
        return message

    transport.change = watch
    masked_sum(ROSTER)(request(6, whole=True), range(3), transport)
    (sent,) = [answer for stage, c, _, answer in transport.seen if (stage, c) == ("masked", client)]
    signed = verify_message(sent, ROSTER, "masked", client)
    attempt_id = signed.attempt_id

    def bound(*rest: str | int) -> bytes:
        return masking.purpose(ROSTER.digest, "run", 1, 1, attempt_id.token, *rest)

    def key(other: int) -> bytes:
        common = masking.x25519(secrets[client][0], masking.x25519(secrets[other][0]))
        return masking.hkdf(common, bound("pair mask", "", *sorted((client, other))))

    own = masking.hkdf(secrets[client][1], bound("own mask", client))
    plus = [own, *(key(other) for other in range(3) if other > client)]
    minus = [key(other) for other in range(3) if other < client]
    expected = masking.mask([n - client for n in range(6)], plus, minus)
    assert bytes(signed.parts[0]) == expected


def test_a_shared_key_is_bound_to_its_purpose() -> None:
    public = public_key(SECRETS[1])
    assert shared_key(SECRETS[0], public, b"one") != shared_key(SECRETS[0], public, b"two")
