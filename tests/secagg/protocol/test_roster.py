import json

import pytest

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.canonical import canonical_json
from fedbb.secagg.protocol.roster import Roster, read_roster, sign_roster
from helpers.secagg_clients import ENROLMENT, SERVER, identity_of, make_roster

MEMBERS = {client: identity_of(client).public for client in range(5)}


def test_a_signed_roster_comes_back_as_it_was() -> None:
    roster = make_roster(5, least=4, least_dispersion=0.02, max_weight=0.5, scale_bits=30)
    assert read_roster(sign_roster(roster, ENROLMENT), ENROLMENT.public) == roster


@pytest.mark.parametrize(("clients", "needed"), [(3, 3), (4, 3), (5, 4), (9, 7), (10, 7), (50, 34)])
def test_more_than_two_thirds_are_needed(clients: int, needed: int) -> None:
    assert make_roster(clients).needed(clients) == needed


@pytest.mark.parametrize(("clients", "needed"), [(3, 3), (5, 3), (10, 6), (50, 26)])
def test_or_a_majority_but_never_fewer_than_the_least(clients: int, needed: int) -> None:
    assert make_roster(clients, threshold="majority").needed(clients) == needed


def test_a_roster_signed_by_another_key_is_refused() -> None:
    signed = sign_roster(make_roster(5), Identity(bytes(32)))
    with pytest.raises(RefusedError, match="not signed by the enrolment key that is pinned"):
        read_roster(signed, ENROLMENT.public)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("least", 4),
        ("threshold", "majority"),
        ("scale_bits", 41),
        ("max_weight", 0.25),
        ("least_dispersion", 1e-9),
        ("privacy", "bfv"),
        ("method", "fedavg"),
        ("gamma", 0.5),
        ("recipe", "00"),
        ("aggregator", identity_of(9).public.hex()),
        ("members", [[client, identity_of(client + 5).public.hex()] for client in range(5)]),
    ],
)
def test_a_tampered_roster_is_refused(field: str, value: object) -> None:
    content = json.loads(sign_roster(make_roster(5), ENROLMENT))
    content["roster"][field] = value
    with pytest.raises(RefusedError, match="not signed by"):
        read_roster(canonical_json(content), ENROLMENT.public)


def test_every_flipped_bit_of_a_roster_is_found() -> None:
    signed = sign_roster(make_roster(3), ENROLMENT)
    for place in range(len(signed)):
        spoiled = bytearray(signed)
        spoiled[place] ^= 1 << place % 8
        with pytest.raises(RefusedError):
            read_roster(bytes(spoiled), ENROLMENT.public)


def test_any_term_makes_another_digest() -> None:
    rosters = [
        make_roster(5),
        make_roster(6),
        make_roster(5, least=4),
        make_roster(5, threshold="majority"),
        make_roster(5, scale_bits=39),
        make_roster(5, max_weight=0.5),
        make_roster(5, least_dispersion=0.5),
        make_roster(5, privacy="bfv"),
        make_roster(5, method="fedavg"),
        make_roster(5, gamma=0.5),
        make_roster(5, recipe="00"),
        Roster(MEMBERS, identity_of(7).public),
    ]
    assert len({roster.digest for roster in rosters}) == len(rosters)
    assert make_roster(5).digest == make_roster(5).digest


def signed(**changes: object) -> bytes:
    """Return a roster that its owner signed with a field of the wrong kind."""
    content = json.loads(sign_roster(make_roster(5), ENROLMENT))["roster"] | changes
    signature = ENROLMENT.sign(b"fedbb roster 1\0" + canonical_json(content))
    return canonical_json({"roster": content, "signature": signature.hex()})


@pytest.mark.parametrize(
    "changes",
    [
        {"members": 3},
        {"members": [[0], [1], [2]]},
        {"members": [[0, "00"], [1, "11"], [2, "22"]]},
        {"members": [[0, identity_of(0).public.hex()]] * 3},
        {"members": [["0", identity_of(0).public.hex()]]},
        {"least": True},
        {"least": 2},
        {"least": 6},
        {"scale_bits": 0},
        {"scale_bits": 53},
        {"max_weight": 0.0},
        {"max_weight": 1},
        {"least_dispersion": -1.0},
        {"threshold": "one"},
        {"aggregator": "xy"},
        {"surplus": 1},
        {"gamma": 1},
        {"privacy": None},
        {"method": 3},
        {"recipe": []},
    ],
)
def test_a_roster_that_makes_no_sense_is_refused_though_it_is_signed(
    changes: dict[str, object],
) -> None:
    with pytest.raises(PrivacyError):
        read_roster(signed(**changes), ENROLMENT.public)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({0: MEMBERS[0], 1: MEMBERS[1]}, "needs 3 clients or more, not 2"),
        ({0: MEMBERS[0], 1: MEMBERS[1], 2: MEMBERS[1]}, "of its own"),
        ({0: MEMBERS[0], 1: MEMBERS[1], 2: SERVER.public}, "of its own"),
        ({0: MEMBERS[0], 1: MEMBERS[1], 2: b"short"}, "a public key of 32 bytes"),
        ({-1: MEMBERS[0], 1: MEMBERS[1], 2: MEMBERS[2]}, "numbered from 0"),
    ],
)
def test_members_must_be_three_or_more_with_keys_of_their_own(
    members: dict[int, bytes], reason: str
) -> None:
    with pytest.raises(PrivacyError, match=reason):
        Roster(members, SERVER.public)


def test_an_identity_is_32_secret_bytes() -> None:
    with pytest.raises(PrivacyError, match="32 secret bytes, not 3"):
        Identity(b"abc")
    assert Identity.draw().public != Identity.draw().public


def test_a_roster_of_an_earlier_version_says_to_enrol_again() -> None:
    content = json.loads(sign_roster(make_roster(5), ENROLMENT))["roster"]
    for name in ("privacy", "method", "gamma", "recipe"):
        del content[name]
    signature = ENROLMENT.sign(b"fedbb roster 1\0" + canonical_json(content))
    old = canonical_json({"roster": content, "signature": signature.hex()})
    with pytest.raises(RefusedError, match=r"earlier version.*enrol them again"):
        read_roster(old, ENROLMENT.public)
