import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.merging import average, normalized_average, renormalize
from fedbb.errors import PrivacyError
from fedbb.records import ClientUpdate, ModelState
from fedbb.secagg.contribution import Bounds, abstain, check_linear, combine, contribute

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
