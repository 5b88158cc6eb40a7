"""What of a change is sent: worked examples, laws for any change, and messages that are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.compression import (
    Compression,
    Sparse,
    decode_positions,
    encode_positions,
    expected_bits,
)
from fedbb.errors import RecipeError
from fedbb.methods import Method
from fedbb.models.registry import build_model
from fedbb.records import ModelState
from fedbb.state import digest, snapshot, state_to_arrays
from helpers.toy import equal_states, toy_network
from reference.sparse import compress as slowly

FIRST = [0.9, -0.2, 0.5, -1.0, 0.1, 0.0, -0.6, 0.3, 0.6, -0.4]
SECOND = [0.05, 0.1, -0.1, 0.2, 0.0, 0.1, 0.1, -0.1, 0.0, 0.1]
KINDS = [
    (values, positions)
    for values in ("binary", "ternary", "exact")
    for positions in ("largest", "drawn")
    if (values, positions) != ("binary", "drawn")
]


def vector(numbers):
    return ModelState({"w": torch.tensor(numbers, dtype=torch.float64)}, {})


ZERO = vector([0.0] * 10)


def send(sparse, change, kept=None, number=1):
    return sparse.compress(ZERO, vector(change), kept or {}, 0, number)


def test_two_rounds_of_binary_values_worked_out_by_hand():
    # The two largest are 0.9 and 0.6, their mean 0.75; the two smallest −1 and −0.6, mean −0.8.
    sparse = Sparse(density=0.2)
    first = send(sparse, FIRST)
    assert first.state.params["w"].tolist() == pytest.approx([0, 0, 0, -0.8, 0, 0, -0.8, 0, 0, 0])
    rest = [0.9, -0.2, 0.5, -0.2, 0.1, 0, 0.2, 0.3, 0.6, -0.4]
    assert first.kept["w"].tolist() == pytest.approx(rest)
    assert float(first.kept["w"].norm()) == pytest.approx(1.34164079)
    # Added up: 0.95, −0.1, 0.4, 0, 0.1, 0.1, 0.3, 0.2, 0.6, −0.3; the means are 0.775 and −0.2.
    second = send(sparse, SECOND, first.kept)
    wanted = [0.775, 0, 0, 0, 0, 0, 0, 0, 0.775, 0]
    assert second.state.params["w"].tolist() == pytest.approx(wanted)


def test_exact_and_ternary_values_worked_out_by_hand():
    exact = send(Sparse(0.2, "exact"), FIRST).state.params["w"].tolist()
    assert exact == [0.9, 0, 0, -1.0, 0, 0, 0, 0, 0, 0]
    # The mean magnitude of 0.9, 1 and the first of the two 0.6 is 2.5/3.
    ternary = send(Sparse(0.3, "ternary"), FIRST).state.params["w"].tolist()
    mean = 2.5 / 3
    assert ternary == pytest.approx([mean, 0, 0, -mean, 0, 0, -mean, 0, 0, 0])


NUMBERS = st.lists(st.floats(-10, 10), min_size=1, max_size=30)


@given(NUMBERS, st.floats(0.01, 1.0), st.sampled_from(["binary", "ternary", "exact"]))
def test_any_change_is_compressed_as_slow_code_does(numbers, density, values):
    if (values, density) == ("exact", 1.0):
        return
    many = max(1, math.floor(density * len(numbers) + 1e-9))
    start = vector([0.0] * len(numbers))
    sent = Sparse(density, values).compress(start, vector(numbers), {}, 0, 1)
    wanted = slowly(numbers, many, values)
    if values == "binary":
        # Sums of many numbers in another order may differ in the last bit, and so may a choice
        # between two means that are nearly equal.
        means = [sorted(n * s for n in numbers)[-many:] for s in (1, -1)]
        if abs(sum(means[0]) - sum(means[1])) < 1e-9:
            return
    assert sent.state.params["w"].tolist() == pytest.approx(wanted, abs=1e-12)


@given(st.data(), st.sampled_from(KINDS), st.sampled_from(["tensor", "whole"]))
def test_what_is_sent_and_what_is_kept_make_up_all_changes(data, kind, scope):
    values, positions = kind
    sparse = Sparse(data.draw(st.floats(0.05, 0.9)), values, positions, scope)
    shapes = {"a": (3, 2), "b": (5,), "c": ()}
    model = ModelState(
        {name: torch.zeros(s, dtype=torch.float64) for name, s in shapes.items()}, {}
    )
    kept, sent, changes = {}, 0.0, 0.0
    for number in range(1, 4):
        drawn = {
            name: torch.tensor(
                data.draw(st.lists(st.floats(-5, 5), min_size=t.numel(), max_size=t.numel())),
                dtype=torch.float64,
            ).reshape(t.shape)
            for name, t in model.params.items()
        }
        found = sparse.compress(model, ModelState(drawn, {}), kept, 7, number)
        assert equal_states(found.state, sparse.rebuild(model, found.message, 7, number))
        assert sparse.fault(found.message, model) is None
        form = sparse.form(model)
        assert {n: (a.dtype, a.shape) for n, a in found.message.items()} == {
            n: (a.dtype, a.shape) for n, a in form.items()
        }
        kept = found.kept
        sent = sent + flat(found.state.params)
        changes = changes + flat(drawn)
        assert (sent + flat(kept)).tolist() == pytest.approx(changes.tolist(), abs=1e-9)


def flat(tensors):
    return torch.cat([tensors[name].reshape(-1).double() for name in sorted(tensors)])


@given(NUMBERS, st.floats(0.01, 1.0))
def test_binary_values_have_one_magnitude_and_the_sum_of_the_chosen_numbers(numbers, density):
    sparse = Sparse(density)
    start = vector([0.0] * len(numbers))
    found = sparse.compress(start, vector(numbers), {}, 0, 1)
    places = found.message["positions.w"].astype(int)
    sent = found.state.params["w"].numpy()
    assert len(set(sent[sent != 0].tolist())) <= 1
    assert sent.sum() == pytest.approx(np.array(numbers)[places].sum(), abs=1e-9)


def test_every_number_sent_exactly_is_the_trained_model_itself():
    trained = snapshot(toy_network(seed=1))
    found = Sparse(1.0, "exact").compress(snapshot(toy_network()), trained, {}, 0, 1)
    assert found.state is trained
    assert (found.message, found.kept) == ({}, {})
    assert Compression().compress(trained, trained, {}, 0, 1).state is trained
    binary = Sparse(1.0).compress(snapshot(toy_network()), trained, {}, 0, 1)
    assert digest(binary.state) != digest(trained)


def test_drawn_positions_are_those_of_the_round_and_change_nothing_else():
    start, sparse = snapshot(toy_network()), Sparse(0.3, "exact", "drawn")
    found = {}
    for number in (1, 2):
        for seed in (1, 2):
            trained = snapshot(toy_network(seed=seed))
            sent = sparse.compress(start, trained, {}, 5, number).state
            moved = flat(sent.params) != flat(start.params)
            places = sparse.drawn(start, 5, number)
            assert not moved.numpy()[np.setdiff1d(np.arange(len(moved)), places)].any()
            found[number] = places
    assert found[1].tolist() != found[2].tolist()
    sizes = [tensor.numel() for _, tensor in sorted(start.params.items())]
    assert len(found[1]) == sum(max(1, math.floor(0.3 * size)) for size in sizes)
    whole = replace(sparse, scope="whole").drawn(start, 5, 1)
    assert len(whole) == math.floor(0.3 * sum(sizes))
    assert Sparse(0.3).drawn(start, 5, 1) is None
    assert Sparse(1.0, "exact", "drawn").drawn(start, 5, 1) is None


def mixed(scale):
    """Return a model with entries of every kind."""
    wave = torch.tensor([1 + 1j, 2 - 1j]) * scale
    params = {
        "half": (torch.arange(6.0) * scale).bfloat16(),
        "double": torch.arange(4, dtype=torch.float64) * scale,
        "zero": torch.tensor([-0.0, -0.0, -0.0]),
        "nothing": torch.empty(0),
        "wave": wave,
    }
    buffers = {"mean": torch.ones(2) * scale, "number": torch.tensor(3)}
    return ModelState(params, buffers)


@pytest.mark.parametrize("scope", ["tensor", "whole"])
@pytest.mark.parametrize(("values", "positions"), KINDS)
def test_entries_of_other_types_are_sent_whole_and_unchanged_ones_keep_their_bits(
    values, positions, scope
):
    start, trained = mixed(1.0), mixed(1.5)
    sparse = Sparse(0.5, values, positions, scope)
    found = sparse.compress(start, trained, {}, 0, 1)
    assert torch.equal(found.state.params["wave"], trained.params["wave"])
    assert torch.equal(found.state.buffers["mean"], trained.buffers["mean"])
    if sparse.leaves_unchanged:
        assert torch.signbit(found.state.params["zero"]).all()
    assert found.state.params["half"].dtype is torch.bfloat16
    assert equal_states(found.state, sparse.rebuild(start, found.message, 0, 1))
    assert sparse.sent_bytes(start) == sum(array.nbytes for array in found.message.values())


def test_the_bytes_of_a_message_for_resnet56():
    model = ModelState(snapshot(build_model("resnet56", 10, (3, 32, 32))).params, {})
    size = sum(tensor.numel() for tensor in model.params.values())
    assert size == 591322
    # Plain positions of four bytes and one magnitude; SBC's own message has 5 bytes more.
    for density, many in ((0.1, 59132), (0.01, 5913), (0.001, 591)):
        assert Sparse(density, scope="whole").sent_bytes(model) == 4 * many + 4
        assert Sparse(density, "exact", "drawn", "whole").sent_bytes(model) == 4 * many
        signs = -(-many // 8)
        assert Sparse(density, "ternary", "drawn", "whole").sent_bytes(model) == signs + 4
    # No tensor has more than 65,536 numbers: two bytes for a position at most.
    assert Sparse(0.1).sent_bytes(model) < 0.06 * 4 * size


@pytest.mark.parametrize(("values", "positions"), KINDS)
def test_what_is_clipped_stays_with_the_client(values, positions):
    start = snapshot(toy_network())
    trained = snapshot(toy_network(seed=1))
    buffers = {n: t + 0.5 if t.is_floating_point() else t for n, t in trained.buffers.items()}
    trained = ModelState(trained.params, buffers)
    sparse = Sparse(0.5, values, positions, clip=0.25)
    found = sparse.compress(start, trained, {}, 0, 1)
    moved = [
        (t.double() - {**start.params, **start.buffers}[n].double()).reshape(-1)
        for n, t in {**found.state.params, **found.state.buffers}.items()
    ]
    assert float(torch.cat(moved).norm()) == pytest.approx(0.25, rel=1e-5)
    change = flat(trained.params) - flat(start.params)
    sent = flat(found.state.params) - flat(start.params)
    assert (sent + flat(found.kept)).tolist() == pytest.approx(change.tolist(), abs=1e-6)
    far = replace(sparse, clip=1e6).compress(start, trained, {}, 0, 1)
    assert equal_states(
        far.state, replace(sparse, clip=None).compress(start, trained, {}, 0, 1).state
    )


def test_without_feedback_nothing_is_kept():
    sparse = Sparse(0.2, feedback=False)
    found = send(sparse, FIRST, {"w": torch.ones(10)})
    assert found.kept == {}
    assert not sparse.keeps
    assert equal_states(found.state, send(Sparse(0.2), FIRST).state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0.0}, "density must be above 0"),
        ({"density": 1.5}, "density must be above 0"),
        ({"values": "some"}, "values is 'some'; allowed: binary, ternary, exact"),
        ({"positions": "all"}, "positions is 'all'; allowed: largest, drawn"),
        ({"scope": "layer"}, "scope is 'layer'; allowed: tensor, whole"),
        ({"positions": "drawn"}, 'positions = "drawn" needs "exact" or "ternary" values'),
    ],
)
def test_values_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sparse(**options)


@pytest.mark.parametrize("places", [[3, 3], [6, 3], [3, 10]])
def test_positions_that_do_not_rise_or_lie_outside_are_found(places):
    sparse = Sparse(0.2)
    message = {**send(sparse, FIRST).message, "positions.w": np.array(places, np.uint8)}
    fault = "positions.w are not 2 rising positions below 10"
    assert sparse.fault(message, ZERO) == fault


def test_signs_beyond_the_last_number_are_found():
    sparse = Sparse(0.3, "ternary")
    message = {**send(sparse, FIRST).message, "signs.w": np.array([0b01110000], np.uint8)}
    assert sparse.fault(message, ZERO) == "signs.w has more than 3 signs"


def test_a_model_that_is_sent_as_it_is_has_the_form_of_the_model():
    model = snapshot(toy_network())
    for whole in (Compression(), Sparse(1.0, "exact")):
        assert whole.form(model).keys() == state_to_arrays(model).keys()
        assert equal_states(whole.rebuild(model, whole.form(model), 0, 1), model)
        assert whole.sent_bytes(model) == sum(a.nbytes for a in state_to_arrays(model).values())
        assert whole.fault(whole.form(model), model) is None


def test_the_bits_of_coded_positions_have_the_published_numbers():
    """b* + 1/(1 − (1 − q)^(2^b*)) at densities 0.1, 0.01 and 0.001."""
    found = [expected_bits(many, 10_000) for many in (1000, 100, 10)]
    assert found == pytest.approx([4.756, 8.108, 11.495], abs=5e-4)


def test_coded_positions_worked_out_by_hand():
    """Positions 3, 4 and 21 of 30: q = 0.1, b* = 3, gaps 3, 0 and 16 = 2·8 + 0."""
    code = encode_positions(np.array([3, 4, 21]), 30)
    bits = "".join(["0011", "0000", "110000"])
    assert "".join(map(str, np.unpackbits(code)))[: len(bits)] == bits
    assert decode_positions(code, 3, 30).tolist() == [3, 4, 21]


@given(st.data(), st.integers(1, 300))
def test_any_positions_are_read_as_they_were_coded(data, size):
    chosen = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    places = np.array(sorted(chosen))
    code = encode_positions(places, size)
    assert decode_positions(code, len(places), size).tolist() == places.tolist()


@given(st.binary(max_size=30), st.integers(1, 12))
def test_a_code_is_read_or_refused_and_has_one_form(content, many):
    code = np.frombuffer(content, np.uint8)
    try:
        places = decode_positions(code, many, 60)
    except ValueError:
        return
    assert (np.diff(places) > 0).all()
    assert 0 <= places[0] <= places[-1] < 60
    assert encode_positions(places, 60).tobytes() == content


def test_coding_changes_the_message_and_not_the_model():
    network = snapshot(toy_network())
    trained = snapshot(toy_network(seed=1))
    plain, coded = (
        Sparse(0.1, coding=coding).compress(network, trained, {}, 0, 1)
        for coding in ("plain", "golomb")
    )
    assert equal_states(plain.state, coded.state)
    assert all(torch.equal(plain.kept[name], coded.kept[name]) for name in plain.kept)
    read = Sparse(0.1, coding="golomb").expand(coded.message, network)
    assert {name: array.tolist() for name, array in read.items()} == {
        name: array.tolist() for name, array in plain.message.items()
    }


def test_coded_positions_have_about_the_expected_size():
    sizes = [Sparse(0.01, coding=c).sent_bytes(snapshot(wide())) for c in ("plain", "golomb")]
    # 2,000 positions of 200,000: four bytes each, or 8.108 bits.
    assert sizes[0] - sizes[1] == 2000 * 4 - math.ceil(2000 * expected_bits(2000, 200_000) / 8)
    rng = np.random.default_rng(0)
    change = torch.from_numpy(rng.normal(size=(200_000,)))
    before, after = (ModelState({"w": t}, {}) for t in (torch.zeros_like(change), change))
    sparse = Sparse(0.01, "exact", coding="golomb")
    sent = sparse.compress(before, after, {}, 0, 1).message
    bytes_of = sum(array.nbytes for array in sent.values())
    assert bytes_of == pytest.approx(sparse.sent_bytes(before), rel=0.01)


def wide():
    return torch.nn.Linear(1, 200_000, bias=False)


def test_buffers_of_the_clients_own_are_not_sent():
    network, trained = (snapshot(torch.nn.BatchNorm1d(4)) for _ in range(2))
    moved = replace(trained, buffers={name: t + 1 for name, t in trained.buffers.items()})
    sparse = Sparse(0.5, buffers="own")
    done = sparse.compress(network, moved, {}, 0, 1)
    assert not any(name.startswith("buffers.") for name in done.message)
    assert all(torch.equal(done.state.buffers[n], t) for n, t in network.buffers.items())
    assert sparse.sent_bytes(network) < Sparse(0.5).sent_bytes(network)
    with pytest.raises(RecipeError, match="sends no buffers, and nothing keeps them"):
        Method("mine", compression=sparse)
