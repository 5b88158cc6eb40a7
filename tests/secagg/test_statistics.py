import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.weighting import BySamples, ClientBalanced
from fedbb.errors import PrivacyError
from fedbb.records import ClientInfo
from fedbb.secagg.statistics import (
    Sums,
    Terms,
    commitment,
    declare,
    fitting_bits,
    own_weight,
    read_sums,
    terms_of,
)

federations = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1)), min_size=1, max_size=40)


def cards_of(drawn):
    return [ClientInfo(client, *values) for client, values in enumerate(drawn)]


def summed(infos, terms):
    total = np.sum([declare(info, terms) for info in infos], axis=0)
    return read_sums(total, tuple(info.client for info in infos), terms)


@given(federations, st.floats(0, 1))
def test_weights_that_clients_compute_from_sums_are_those_of_the_cards(drawn, gamma):
    infos = cards_of([*drawn, (3, 0.5)])
    weighting = ClientBalanced(gamma)
    terms = terms_of(weighting, len(infos))
    sums = summed(infos, terms)
    ours = [own_weight(info, sums, terms) for info in infos]
    assert ours == pytest.approx(weighting(infos).tolist(), rel=1e-11, abs=1e-15)


@given(federations)
def test_by_samples_is_a_gamma_of_zero_and_tells_nothing_of_evenness(drawn):
    infos = [ClientInfo(info.client, info.samples) for info in cards_of([*drawn, (3, 0.5)])]
    terms = terms_of(BySamples(), len(infos))
    sums = summed(infos, terms)
    assert sums.evenness == 0
    ours = [own_weight(info, sums, terms) for info in infos]
    assert ours == pytest.approx(BySamples()(infos).tolist(), rel=1e-12)


def test_what_is_declared_is_whole_and_by_hand():
    terms = Terms(1.0, 0.25, bits=4)
    # 1/0.4 = 2.5 = 40/16; R below the floor counts as 0.25, whose inverse is 64/16.
    assert declare(ClientInfo(0, 12, 0.4), terms).tolist() == [12, 40, 1]
    assert declare(ClientInfo(0, 12, 1e-9), terms).tolist() == [12, 64, 1]
    assert declare(ClientInfo(0, 0, 0.4), terms).tolist() == [0, 0, 1]


def test_a_commitment_is_the_hash_of_nonce_and_values():
    values = declare(ClientInfo(0, 12, 0.4), Terms(1.0, 0.25, bits=4))
    plain = b"n" * 32 + b"".join(int(v).to_bytes(8, "little") for v in (12, 40, 1))
    assert commitment(b"n" * 32, values) == hashlib.sha256(plain).hexdigest()


def test_a_liars_evenness_is_cut_at_the_floor():
    weighting = ClientBalanced(gamma=0.5, floor=0.01)
    honest = [ClientInfo(client, 100, 0.2) for client in range(1, 5)]
    liar = ClientInfo(0, 100, 1e-9)
    terms = terms_of(weighting, 5)
    sums = summed([liar, *honest], terms)
    assert own_weight(liar, sums, terms) == pytest.approx(0.5 * 100 / 120 + 0.1)


def test_sums_that_cannot_be_are_refused():
    terms = Terms(1.0, 0.01)
    fair = np.array([30, 300 * 2**40, 3])
    assert read_sums(fair, (0, 1, 2), terms) == Sums(30, 300.0, (0, 1, 2))
    inflated = np.array([30, 10**9 * 2**10, 3])
    with pytest.raises(PrivacyError, match="declares more than it may"):
        read_sums(inflated, (0, 1, 2), Terms(1.0, 0.01, bits=10))
    with pytest.raises(PrivacyError, match="declares more than it may"):
        own_weight(ClientInfo(0, 10, 0.5), Sums(30, 1e9, (0, 1, 2)), terms)
    with pytest.raises(PrivacyError, match="of 4 clients where 3 took part"):
        read_sums(np.array([30, 0, 4]), (0, 1, 2), terms)
    with pytest.raises(PrivacyError, match="no client holds a sample"):
        read_sums(np.array([0, 0, 3]), (0, 1, 2), terms)


@pytest.mark.parametrize("dispersion", [None, np.nan, -0.1, np.inf])
def test_a_card_that_says_nothing_of_evenness_is_refused(dispersion):
    with pytest.raises(PrivacyError, match="client 4 has no dispersion"):
        declare(ClientInfo(4, 10, dispersion), Terms(1.0, 0.01))


@given(st.integers(3, 10**6), st.floats(1e-9, 1))
def test_the_largest_possible_sum_fits_the_ring(clients, floor):
    bits = fitting_bits(clients, floor)
    assert 0 <= bits <= 40
    largest = declare(ClientInfo(0, 1, 0.0), Terms(1.0, floor, bits))[1]
    assert clients * int(largest) < 2**63


def test_a_floor_too_small_for_any_sum_is_refused():
    with pytest.raises(PrivacyError, match=r"larger method\.options\.floor"):
        fitting_bits(10**9, 1e-15)


def test_a_weighting_that_sums_cannot_serve_is_refused_by_name():
    @dataclass
    class ByMood:
        def measure(self, counts):
            return 0.0

    with pytest.raises(PrivacyError, match="ByMood from sums alone"):
        terms_of(ByMood(), 3)
