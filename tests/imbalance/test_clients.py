"""Client Balanced Reweighting from counts: Eq. 9 to 12, printed and repaired."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbb.imbalance import READINGS, balance_weights, client_weights, dispersion
from reference import cbr as reference
from reference.cifar10_split import label_counts

quick = settings(deadline=None, max_examples=25)
SHARES = ("share-std", "share-var")
readings = st.sampled_from(READINGS)
gammas = st.floats(0, 1)
NAN = float("nan")


@st.composite
def tables(draw: st.DrawFn, smallest: int = 0) -> np.ndarray:
    """Counts (clients, classes) of which some client holds something."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    table = draw(hnp.arrays(np.int64, shape, elements=st.integers(smallest, 10**5)))
    assume(table.sum() > 0)
    return table


@quick
@given(tables(), gammas)
def test_eq_10_as_printed_weighs_clients_that_hold_anything_alike_whatever_their_counts(
    table, gamma
):
    """R is a sum of parts divided by that sum: one. So CBR by the letter is the plain mean."""
    held = table.sum(axis=1) > 0
    uniform = held / held.sum()
    np.testing.assert_array_equal(dispersion(table, reading="printed"), np.ones(len(table)))
    np.testing.assert_allclose(client_weights(table, reading="printed"), uniform, atol=1e-12)
    mixed = client_weights(table, reading="printed", gamma=gamma)
    by_size = table.sum(axis=1) / table.sum()
    np.testing.assert_allclose(mixed, gamma * uniform + (1 - gamma) * by_size, atol=1e-12)


@pytest.mark.parametrize(
    ("reading", "known", "error"),
    [
        ("share-std", [0.136, 0.069, 0.099, 0.107, 0.105, 0.086, 0.117, 0.101, 0.077, 0.102], 5e-4),
        # .0465 and .0995 stand in the table as .047 and .100.
        ("share-var", [0.179, 0.047, 0.095, 0.112, 0.106, 0.072, 0.132, 0.100, 0.057, 0.101], 6e-4),
        ("count-std", [0.058, 0.044, 0.043, 0.403, 0.124, 0.046, 0.059, 0.108, 0.041, 0.074], 5e-4),
        ("printed", [0.1] * 10, 1e-15),
    ],
)
def test_weights_of_the_cifar10_split_are_the_known_ones(reading, known, error):
    weights = client_weights(label_counts(), reading=reading)
    np.testing.assert_allclose(weights, known, atol=error)


def test_weights_by_size_of_the_cifar10_split_are_the_known_ones():
    known = [0.152, 0.103, 0.150, 0.017, 0.055, 0.123, 0.128, 0.061, 0.122, 0.090]
    np.testing.assert_allclose(client_weights(label_counts(), gamma=0), known, atol=5e-4)


@pytest.mark.parametrize(("seed", "images", "weight"), [(0, 51, 0.885), (1996, 232, 0.581)])
def test_the_spread_of_raw_counts_hands_the_model_to_the_smallest_client(seed, images, weight):
    table = label_counts(0.05, seed)
    smallest = table.sum(axis=1).argmin()
    assert table[smallest].sum() == images
    assert client_weights(table, reading="count-std")[smallest] == pytest.approx(weight, abs=5e-4)
    assert client_weights(table)[smallest] < 0.2


@quick
@given(tables(smallest=1), gammas, readings)
def test_weights_equal_the_loop_where_no_client_is_even(table, gamma, reading):
    assume(table.shape[1] > 1 and np.all(table.min(axis=1) < table.max(axis=1)))
    rows = table.tolist()
    spread = [reference.dispersion(row, sum(row), reading) for row in rows]
    expected = reference.weights(spread, [sum(row) for row in rows], gamma)
    found = client_weights(table, gamma=gamma, reading=reading, floor=1e-300)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@quick
@given(tables(), gammas, readings)
def test_weights_are_at_least_zero_and_sum_to_one(table, gamma, reading):
    weights = client_weights(table, gamma=gamma, reading=reading)
    assert np.all(weights >= 0)
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@quick
@given(tables(), gammas, readings, st.randoms(use_true_random=False))
def test_weights_follow_the_clients_and_ignore_the_order_of_classes(table, gamma, reading, random):
    clients = random.sample(range(table.shape[0]), table.shape[0])
    classes = random.sample(range(table.shape[1]), table.shape[1])
    weights = client_weights(table, gamma=gamma, reading=reading)
    shuffled = client_weights(table[clients][:, classes], gamma=gamma, reading=reading)
    np.testing.assert_allclose(shuffled, weights[clients], atol=1e-12)


@quick
@given(tables(), readings)
def test_gamma_zero_gives_fedavg_weights_to_the_bit(table, reading):
    sizes = table.sum(axis=1).astype(np.float64)
    weights = client_weights(table, gamma=0, reading=reading)
    assert weights.tolist() == (sizes / sizes.sum()).tolist()


@quick
@given(tables(), gammas, readings)
def test_weights_are_affine_in_gamma(table, gamma, reading):
    even, sized = (client_weights(table, gamma=end, reading=reading) for end in (1.0, 0.0))
    mixed = client_weights(table, gamma=gamma, reading=reading)
    np.testing.assert_allclose(mixed, gamma * even + (1 - gamma) * sized, atol=1e-12)


@quick
@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any),
    st.integers(1, 8),
    gammas,
    readings,
)
def test_equal_counts_everywhere_give_equal_weights(row, clients, gamma, reading):
    weights = client_weights([row] * clients, gamma=gamma, reading=reading)
    np.testing.assert_allclose(weights, 1 / clients, atol=1e-12)


@quick
@given(tables(smallest=1), st.integers(2, 100), st.sampled_from(SHARES))
def test_ten_times_the_data_leaves_the_dispersion_and_raises_the_weight_by_size(
    table, factor, reading
):
    larger = np.concatenate([table[:1] * factor, table[1:]])
    before, after = (dispersion(rows, reading=reading) for rows in (table, larger))
    np.testing.assert_allclose(after, before, atol=1e-12)
    if len(table) > 1:
        assert client_weights(larger, gamma=0)[0] > client_weights(table, gamma=0)[0]


def test_the_spread_of_raw_counts_is_not_free_of_scale():
    """Equal shares, ten times the images: weights 10/11 and 1/11 instead of one half each."""
    table = [[30, 10], [300, 100]]
    np.testing.assert_allclose(client_weights(table), [1 / 2, 1 / 2])
    np.testing.assert_allclose(client_weights(table, reading="count-std"), [10 / 11, 1 / 11])


@pytest.mark.parametrize("reading", SHARES)
def test_weights_fall_with_skew(reading):
    table = [[25, 25, 25, 25], [40, 20, 20, 20], [70, 10, 10, 10], [100, 0, 0, 0]]
    assert np.all(np.diff(client_weights(table, reading=reading)) < 0)


@quick
@given(tables(), st.data(), st.sampled_from(["share-std", "share-var", "count-std"]))
def test_moving_a_case_from_a_rarer_to_a_commoner_class_never_gains_weight(table, data, reading):
    """At equal size; such a step makes the counts majorize what they were."""
    assume(table.shape[1] > 1)
    rare, common = np.argsort(table[0], kind="stable")[[0, -1]]
    moved = table.copy()
    step = data.draw(st.integers(0, int(table[0, rare])))
    moved[0, rare] -= step
    moved[0, common] += step
    before, after = (dispersion(rows, reading=reading)[0] for rows in (table, moved))
    assert after >= before - 1e-12
    weight = client_weights(table, reading=reading)[0]
    assert client_weights(moved, reading=reading)[0] <= weight + 1e-12


def test_splitting_a_client_keeps_its_weight_by_size_but_not_by_evenness():
    """Halves are as skewed as the whole, so each counts like a whole client: 2/3 instead of 1/2."""
    whole, halves = [[60, 20], [20, 60]], [[30, 10], [30, 10], [20, 60]]
    assert client_weights(halves, gamma=0)[:2].sum() == client_weights(whole, gamma=0)[0]
    np.testing.assert_allclose(client_weights(whole), [1 / 2, 1 / 2])
    np.testing.assert_allclose(client_weights(halves), [1 / 3, 1 / 3, 1 / 3])


@quick
@given(tables(), st.floats(1e-6, 1.0))
def test_no_client_gains_by_being_more_even_than_the_floor(table, floor):
    raised = np.maximum(dispersion(table), floor)
    held = table.sum(axis=1) > 0
    bound = (1 / floor) / (1 / raised[held]).sum()
    assert np.all(client_weights(table, floor=floor) <= bound + 1e-12)


def test_a_perfectly_even_client_is_held_by_the_floor():
    """Shares (.5, .5) and (1, 0): R = 0 → .001 and .5, inverses 1000 and 2."""
    weights = client_weights([[50, 50], [100, 0]])
    np.testing.assert_allclose(weights, [1000 / 1002, 2 / 1002])
    np.testing.assert_allclose(client_weights([[50, 50], [100, 0]], floor=1.0), [0.5, 0.5])


def test_samples_turn_shares_into_prevalences():
    """A/n = (.3, .1) and (.2, .1): R = .1 and .05, so weights 1/3 and 2/3."""
    table, samples = [[30, 10], [20, 10]], [100, 100]
    np.testing.assert_allclose(dispersion([30, 10], 100), 0.1)
    np.testing.assert_allclose(client_weights(table, samples), [1 / 3, 2 / 3])
    np.testing.assert_allclose(client_weights(table, [100, 300], gamma=0), [1 / 4, 3 / 4])


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_a_client_without_samples_weighs_nothing(reading, gamma):
    weights = client_weights([[3, 1], [0, 0], [1, 3]], gamma=gamma, reading=reading)
    np.testing.assert_allclose(weights, [0.5, 0, 0.5])


@pytest.mark.parametrize("reading", SHARES)
def test_a_client_without_positives_counts_as_the_most_skewed(reading):
    assert dispersion([0, 0, 0], 50, reading=reading) == 1.0
    weights = client_weights([[0, 0], [10, 0]], [50, 50], reading=reading)
    assert weights[0] < weights[1]


@quick
@given(readings, gammas, st.integers(1, 100), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_single_client_or_a_single_class_is_no_special_case(reading, gamma, count, column):
    assert client_weights([[count, 2, 0]], gamma=gamma, reading=reading) == pytest.approx(1)
    by_evenness = client_weights([[held] for held in column], reading=reading)
    np.testing.assert_allclose(by_evenness, 1 / len(column))


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_renormalized_weights_of_the_survivors_are_those_of_a_federation_of_them(gamma):
    table = label_counts()
    survivors = [0, 3, 4, 8]
    chosen = client_weights(table, gamma=gamma)[survivors]
    alone = client_weights(table[survivors], gamma=gamma)
    np.testing.assert_allclose(chosen / chosen.sum(), alone, atol=1e-12)


def test_ten_thousand_clients_are_weighed():
    table = np.random.RandomState(0).poisson(20, size=(10_000, 14))
    weights = client_weights(table, gamma=0.5)
    assert weights.shape == (10_000,)
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("counts", [[1, 2], [[[1]]], [[1, -1]], [[1, NAN]], [[1, float("inf")]]])
def test_counts_that_are_no_table_are_refused(counts):
    with pytest.raises(ValueError, match="counts must be a table"):
        client_weights(counts)


@pytest.mark.parametrize("samples", [[9], [9, 9, 9], 9, [[9], [9]]])
def test_samples_that_do_not_fit_the_clients_are_refused(samples):
    with pytest.raises(ValueError, match="samples must hold one number for each of 2 clients"):
        client_weights([[1, 2], [2, 1]], samples)


def test_more_positives_than_samples_are_refused():
    with pytest.raises(ValueError, match="counts must not exceed the samples"):
        client_weights([[1, 2], [2, 1]], [1, 9])


@pytest.mark.parametrize("counts", [[[0, 0], [0, 0]], np.zeros((0, 3))])
def test_a_federation_without_a_sample_is_refused(counts):
    with pytest.raises(ValueError, match="no client holds a sample"):
        client_weights(counts)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, NAN])
def test_a_gamma_outside_its_range_is_refused(gamma):
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\], not"):
        client_weights([[1, 2]], gamma=gamma)


@pytest.mark.parametrize("floor", [0.0, -1.0, NAN, float("inf")])
def test_a_floor_outside_its_range_is_refused(floor):
    with pytest.raises(ValueError, match="floor must be a finite number above 0, not"):
        client_weights([[1, 2]], floor=floor)


def test_an_unknown_reading_is_refused():
    with pytest.raises(ValueError, match=r"reading must be one of share-std, .*, not 'std'"):
        client_weights([[1, 2]], reading="std")


@pytest.mark.parametrize("values", [[0.1, NAN], [0.1, -0.1], [0.1, float("inf")], [[0.1, 0.2]]])
def test_dispersions_and_samples_that_cannot_be_are_refused(values):
    with pytest.raises(ValueError, match="dispersion must be one finite number"):
        balance_weights(values, [5, 5])
    with pytest.raises(ValueError, match="samples must be one finite number"):
        balance_weights([0.1, 0.1], values)


def test_dispersions_that_do_not_fit_the_clients_are_refused():
    with pytest.raises(ValueError, match="3 dispersions do not fit 2 clients"):
        balance_weights([0.1, 0.1, 0.1], [5, 5])
