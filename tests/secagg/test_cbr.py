import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.merging import (
    BySamples,
    ClientBalanced,
    average,
    normalized_average,
    renormalize,
)
from fedbb.errors import PrivacyError
from fedbb.records import ClientInfo, ClientUpdate, ModelState
from fedbb.secagg.cbr import (
    Bounds,
    Sums,
    Terms,
    abstain,
    check_linear,
    combine,
    commitment,
    contribute,
    declare,
    fitting_bits,
    own_weight,
    read_sums,
    terms_of,
)

federations = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1)), min_size=1, max_size=40)


def infos_of(drawn):
    return [ClientInfo(client, *values) for client, values in enumerate(drawn)]


def summed(infos, terms):
    total = np.sum([declare(info, terms) for info in infos], axis=0)
    return read_sums(total, tuple(info.client for info in infos), terms)


@given(federations, st.floats(0, 1))
def test_weights_that_clients_compute_from_sums_are_those_of_the_server(drawn, gamma):
    infos = infos_of([*drawn, (3, 0.5)])
    weighting = ClientBalanced(gamma)
    terms = terms_of(weighting, len(infos))
    sums = summed(infos, terms)
    ours = [own_weight(info, sums, terms) for info in infos]
    assert ours == pytest.approx(weighting(infos).tolist(), rel=1e-11, abs=1e-15)


@given(federations)
def test_by_samples_is_a_gamma_of_zero_and_tells_nothing_of_evenness(drawn):
    infos = [ClientInfo(info.client, info.samples) for info in infos_of([*drawn, (3, 0.5)])]
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
    with pytest.raises(PrivacyError, match="declares more than allowed"):
        read_sums(inflated, (0, 1, 2), Terms(1.0, 0.01, bits=10))
    with pytest.raises(PrivacyError, match="declares more than allowed"):
        own_weight(ClientInfo(0, 10, 0.5), Sums(30, 1e9, (0, 1, 2)), terms)
    with pytest.raises(PrivacyError, match="of 4 clients where 3 took part"):
        read_sums(np.array([30, 0, 4]), (0, 1, 2), terms)
    with pytest.raises(PrivacyError, match="no client has samples"):
        read_sums(np.array([0, 0, 3]), (0, 1, 2), terms)


@pytest.mark.parametrize("dispersion", [None, np.nan, -0.1, np.inf])
def test_a_client_without_a_valid_dispersion_is_refused(dispersion):
    with pytest.raises(PrivacyError, match="client 4 has no valid dispersion"):
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


CURRENT = ModelState(
    {"weight": torch.tensor([1.0, -2.0]), "bias": torch.tensor(0.5)},
    {"mean": torch.tensor([0.25]), "count": torch.tensor(7)},
)

numbers = st.floats(-5, 5, width=32)
clients = st.lists(
    st.tuples(st.tuples(*[numbers] * 4), st.floats(1, 50), st.floats(0.01, 1)),
    min_size=1,
    max_size=6,
)


def update(client, values, mass=1.0):
    first, second, bias, mean = values
    params = {"weight": torch.tensor([first, second]), "bias": torch.tensor(bias)}
    buffers = {"mean": torch.tensor([mean]), "count": torch.tensor(9)}
    return ClientUpdate(client, ModelState(params, buffers), 3, mass, 0.0)


def joined(updates, weights, merge):
    parts = [contribute(CURRENT, u, w, merge) for u, w in zip(updates, weights, strict=True)]
    return combine(CURRENT, np.sum(parts, axis=0))


@pytest.mark.parametrize("merge", [average, normalized_average])
@given(clients)
def test_a_sum_of_parts_is_the_merge_over_those_who_took_part(merge, drawn):
    updates = [update(k, values, mass) for k, (values, mass, _) in enumerate(drawn)]
    weights = np.array([weight for *_, weight in drawn])
    ours = joined(updates, weights, merge)
    plain = merge(CURRENT, updates, renormalize(weights))
    for name, tensor in plain.params.items():
        torch.testing.assert_close(ours.params[name], tensor, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.buffers["mean"], plain.buffers["mean"], rtol=1e-5, atol=1e-5)


def test_parts_by_hand():
    # Δ = 2, (1, 0) and 0.75; W/a = 0.125 for the parameters, W = 0.25 for the buffer.
    part = contribute(CURRENT, update(0, (2.0, -2.0, 2.5, 1.0), 2.0), 0.25, normalized_average)
    assert part.tolist() == [0.25, 0.125, 0.0, 0.1875, 0.5, 0.25, 1.0]
    part = contribute(CURRENT, update(0, (2.0, -2.0, 2.5, 1.0), 2.0), 0.25, average)
    assert part.tolist() == [0.5, 0.25, 0.0, 0.1875, 0.25, 0.25, 1.0]


def test_the_order_in_which_a_state_names_its_entries_does_not_matter():
    turned = ModelState(
        dict(reversed(CURRENT.params.items())), dict(reversed(CURRENT.buffers.items()))
    )
    one = update(0, (2.0, 1.0, 0.0, 1.0))
    part = contribute(turned, one, 0.25, average)
    assert part.tolist() == contribute(CURRENT, one, 0.25, average).tolist()
    state = combine(turned, part)
    assert list(state.params) == list(turned.params)
    assert state.params["weight"].tolist() == pytest.approx([2.0, 1.0])


def test_integers_keep_the_servers_value_and_types_stay():
    state = joined([update(0, (1.0, 2.0, 3.0, 4.0))], [0.5], average)
    assert state.buffers["count"].item() == 7
    assert state.buffers["count"].dtype == torch.int64
    assert state.params["bias"].shape == ()
    assert state.params["bias"].item() == 3.0
    assert list(state.buffers) == list(CURRENT.buffers)


def test_a_client_without_samples_adds_nothing_but_that_it_took_part():
    part = contribute(CURRENT, update(0, (2.0, 1.0, 0.0, 1.0)), 0.25, average)
    assert abstain(CURRENT).shape == part.shape
    assert abstain(CURRENT).tolist() == [0.0] * 6 + [1.0]
    alone, beside = combine(CURRENT, part), combine(CURRENT, part + abstain(CURRENT))
    assert alone.params["weight"].tolist() == beside.params["weight"].tolist()


def test_if_nobody_weighs_anything_nothing_moves():
    assert combine(CURRENT, 3 * abstain(CURRENT)) is CURRENT


def test_a_change_is_shortened_before_it_is_sent():
    far = update(0, (4.0, 2.0, 0.5, 0.25))  # Δ = (3, 4), of norm 5
    part = contribute(CURRENT, far, 1.0, average, Bounds(max_norm=2.5))
    assert part[:4].tolist() == pytest.approx([0.0, 1.5, 2.0, 0.0])
    near = contribute(CURRENT, far, 1.0, average, Bounds(max_norm=6.0))
    assert near.tolist() == contribute(CURRENT, far, 1.0, average).tolist()


@pytest.mark.parametrize("merge", [average, normalized_average])
def test_what_is_cut_off_a_weight_moves_the_model_nowhere(merge):
    heavy, light = update(0, (2.0, -2.0, 0.5, 1.0), 2.0), update(1, (1.0, -1.0, 0.5, 0.25), 2.0)
    parts = [contribute(CURRENT, u, w, merge, Bounds(0.3)) for u, w in ((heavy, 0.9), (light, 0.1))]
    state = combine(CURRENT, sum(parts))
    # Δ of 1 weighs 0.3, not 0.9 nor 0.3/0.4; that of the other weighs 0.1 as before.
    assert state.params["weight"].tolist() == pytest.approx([1.3, -1.9])
    assert state.buffers["mean"].tolist() == pytest.approx([0.25 + 0.3 * 0.75])


def test_a_merge_that_must_see_every_model_is_refused_by_name():
    def favorite(current, updates, weights):
        return next(iter(updates)).state

    with pytest.raises(PrivacyError, match=r"favorite needs each client's model.*average, norm"):
        check_linear(favorite)
    with pytest.raises(PrivacyError, match="favorite"):
        contribute(CURRENT, update(0, (0.0, 0.0, 0.0, 0.0)), 0.5, favorite)
