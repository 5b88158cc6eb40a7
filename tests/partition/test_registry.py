import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.dataset import Examples
from fedbb.errors import DataError
from fedbb.partition.algorithms import assign_groups, by_value, iid_parts
from fedbb.partition.label_distance import measure_skew
from fedbb.partition.registry import KINDS, Rule, divide
from fedbb.records import Task


def examples(samples: int = 120, classes: int = 4) -> Examples:
    labels = np.arange(samples) % classes
    sites = np.array([f"site {number % 5}" for number in range(samples)])
    return Examples(np.zeros((samples, 1, 2, 2), dtype=np.uint8), labels, {"site": sites})


RULES = st.one_of(
    st.builds(
        Rule,
        kind=st.sampled_from(["label-skew", "quantity-skew"]),
        clients=st.integers(1, 5),
        concentration=st.sampled_from([0.5, 1.0, 100.0]),
        min_samples=st.integers(1, 5),
        seed=st.integers(0, 99),
    ),
    st.builds(Rule, kind=st.just("even"), clients=st.integers(1, 120), seed=st.integers(0, 99)),
    st.builds(
        Rule,
        kind=st.just("pathological"),
        clients=st.integers(2, 12),
        classes_per_client=st.integers(2, 4),
        seed=st.integers(0, 99),
    ),
    st.builds(
        Rule,
        kind=st.just("shards"),
        clients=st.integers(1, 30),
        shards_per_client=st.integers(1, 4),
        seed=st.integers(0, 99),
    ),
    st.builds(Rule, kind=st.just("column"), column=st.just("site")),
    st.builds(Rule, kind=st.just("column"), column=st.just("site"), clients=st.integers(1, 5)),
)


@given(RULES)
def test_every_sample_is_in_exactly_one_client_whatever_the_rule(rule) -> None:
    made = divide(rule, examples(), Task.MULTICLASS)
    assert np.array_equal(np.sort(np.concatenate(made.clients)), np.arange(120))
    assert len(made.clients) == (rule.clients or 5)
    assert min(made.sizes) >= (rule.min_samples if "skew" in rule.kind else 1)
    assert made == divide(rule, examples(), Task.MULTICLASS)


@given(labels=st.lists(st.integers(0, 3), min_size=60, max_size=60), seed=st.integers(0, 9))
def test_quantity_skew_never_looks_at_labels(labels, seed) -> None:
    rule = Rule("quantity-skew", clients=3, concentration=1.0, min_samples=2, seed=seed)
    plain = examples(60)
    other = Examples(plain.inputs, np.array(labels), plain.columns)
    first, second = (divide(rule, data, Task.MULTICLASS).clients for data in (plain, other))
    assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def test_a_column_makes_each_site_a_client() -> None:
    made = divide(Rule("column", column="site"), examples(), Task.MULTICLASS)
    assert made.sizes == [24] * 5
    rule = {"kind": "column", "seed": 0, "column": "site", "measured_skew": 0.0}
    assert made.rule == rule


def test_a_saved_partition_is_used_as_it_is(tmp_path) -> None:
    made = divide(Rule("even", clients=7), examples(), Task.MULTICLASS)
    made.save(tmp_path / "shared.json")
    rule = Rule("file", path=tmp_path / "shared.json")
    assert divide(rule, examples(), Task.MULTICLASS) == made
    with pytest.raises(DataError, match="the data has 119"):
        divide(rule, examples(119), Task.MULTICLASS)


def test_multi_label_data_takes_all_kinds_and_tells_their_skew() -> None:
    plain = examples(60)
    marks = (np.arange(180).reshape(60, 3) % 4 == 0).astype(np.float32)
    data = Examples(plain.inputs, marks, plain.columns)
    skew = {"clients": 3, "concentration": 1.0, "min_samples": 1}
    skews = [Rule("quantity-skew", **skew), Rule("label-skew", **skew)]
    few = [Rule("pathological", 3, classes_per_client=2), Rule("shards", 3, shards_per_client=2)]
    for rule in (*skews, *few, Rule("even", 3), Rule("column", column="site")):
        made = divide(rule, data, Task.MULTILABEL)
        assert sum(made.sizes) == 60
        assert made.rule["measured_skew"] == round(measure_skew(marks, made.clients), 6)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule("label-scew", 5, 0.5), "did you mean label-skew"),
        (Rule("label-skew", 5), "needs concentration"),
        (Rule("label-skew", concentration=0.5), "needs clients"),
        (Rule("even", 5, concentration=0.5), "even takes clients; concentration is none"),
        (Rule("column", column="sight"), "did you mean site"),
        (Rule("column"), "needs column"),
        (Rule("file"), "needs path"),
        (Rule("pathological", 5), "needs classes_per_client"),
        (Rule("even", 5, shards_per_client=2), "shards_per_client is none of them"),
        (Rule("pathological", 1, classes_per_client=2), "cannot hold all 4 classes"),
        (Rule("pathological", 5, classes_per_client=5), "allowed: 1 to 4"),
        (Rule("pathological", 121, classes_per_client=1), "class 0 has 30 samples for the 31"),
        (Rule("shards", 61, shards_per_client=2), "there are 120 samples to cut"),
        (Rule("even", clients=121), "allowed: 1 to 120"),
        (Rule("label-skew", clients=13, concentration=1.0), "there are 120"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(rule, message) -> None:
    with pytest.raises(DataError, match=message):
        divide(rule, examples(), Task.MULTICLASS)


def test_no_samples_are_refused_by_every_kind() -> None:
    fields = {"clients": 1, "concentration": 1.0, "column": "site"}
    fields |= {"classes_per_client": 1, "shards_per_client": 1}
    for name, kind in KINDS.items():
        rule = Rule(name, **{key: fields[key] for key in kind.needs})
        with pytest.raises(DataError, match="no samples"):
            divide(rule, examples(0), Task.MULTICLASS)


@given(samples=st.integers(1, 300), clients=st.integers(1, 40), seed=st.integers(0, 5))
def test_sizes_differ_by_one_at_most(samples, clients, seed) -> None:
    if clients > samples:
        with pytest.raises(DataError, match=f"allowed: 1 to {samples}"):
            iid_parts(samples, clients, seed)
        return
    owners = iid_parts(samples, clients, seed)
    sizes = np.bincount(owners, minlength=clients)
    assert len(owners) == samples
    assert len(sizes) == clients
    assert np.ptp(sizes) <= 1
    assert np.array_equal(owners, iid_parts(samples, clients, seed))


def test_samples_are_shuffled_by_the_seed() -> None:
    first, second = iid_parts(100, 2, 0), iid_parts(100, 2, 1)
    assert not np.array_equal(first, np.arange(100) % 2)
    assert not np.array_equal(first, second)


def test_no_clients_are_refused() -> None:
    with pytest.raises(DataError, match="clients is 0"):
        iid_parts(10, 0, 0)


SITES = np.array(["north", "south", "north", "east", "south", "north"])


def test_each_value_is_a_client_in_sorted_order() -> None:
    assert by_value(SITES).tolist() == [1, 2, 1, 0, 2, 1]


@given(
    values=st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=80),
    clients=st.integers(1, 10),
    seed=st.integers(0, 5),
)
def test_no_value_is_on_two_clients_and_no_client_is_empty(values, clients, seed) -> None:
    array = np.array(values)
    if clients > len(set(values)):
        with pytest.raises(DataError, match="different values"):
            assign_groups(array, clients, seed)
        return
    owners = assign_groups(array, clients, seed)
    assert set(owners.tolist()) == set(range(clients))
    assert all(len(set(owners[array == value].tolist())) == 1 for value in set(values))
    assert np.array_equal(owners, assign_groups(array, clients, seed))


def test_many_small_values_give_balanced_clients() -> None:
    patients = np.repeat(np.arange(200), np.arange(200) % 7 + 1).astype(str)
    sizes = np.bincount(assign_groups(patients, 5, seed=0))
    assert np.ptp(sizes) <= 1


def test_groups_of_equal_size_are_assigned_by_the_seed() -> None:
    patients = np.arange(40).astype(str)
    assigned = [assign_groups(patients, 4, seed).tolist() for seed in (0, 0, 1)]
    assert assigned[0] == assigned[1] != assigned[2]
