import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.dataset import Dataset
from fedbb.errors import DataError
from fedbb.partition.label_distance import measure_skew
from fedbb.partition.partition import Partition, fingerprint, group_owners

LABELS = np.array([0, 1, 2, 0, 1, 2])


def partition(*clients: list[int], labels=LABELS) -> Partition:
    places = tuple(np.array(client, dtype=np.int64) for client in clients)
    return Partition(places, len(labels), fingerprint(labels), {"kind": "made by hand"})


@given(st.data())
def test_owners_become_sorted_places_that_cover_every_sample_once(data) -> None:
    clients = data.draw(st.integers(1, 6))
    tail = st.lists(st.integers(0, clients - 1), max_size=40)
    owners = np.array(data.draw(st.permutations([*range(clients), *data.draw(tail)])))
    made = group_owners(owners, clients, np.zeros(len(owners), dtype=np.int64), {})
    assert np.array_equal(np.sort(np.concatenate(made.clients)), np.arange(len(owners)))
    assert all((np.diff(places) > 0).all() for places in made.clients)
    assert all((owners[places] == client).all() for client, places in enumerate(made.clients))
    assert sum(made.sizes) == len(owners)


@given(owners=st.lists(st.integers(0, 3), max_size=30), clients=st.just(4))
def test_a_saved_partition_comes_back_equal(tmp_path_factory, owners, clients) -> None:
    everyone = np.array([0, 1, 2, 3, *owners])
    made = group_owners(everyone, clients, everyone, {"kind": "even", "seed": 0, "share": 0.25})
    path = tmp_path_factory.mktemp("partition") / "partition.json"
    made.save(path)
    loaded = Partition.load(path)
    assert loaded == made
    assert hash(loaded) == hash(made)
    assert loaded.rule == made.rule
    assert all(places.dtype == np.int64 for places in loaded.clients)


def test_partitions_that_differ_in_anything_are_unequal() -> None:
    made = partition([0, 1, 2], [3, 4, 5])
    assert made != partition([0, 1, 3], [2, 4, 5])
    assert made != partition([0, 1, 2], [3, 4, 5], labels=LABELS[::-1])
    assert made != "a partition"


def test_a_partition_fits_the_labels_it_was_made_for() -> None:
    made = partition([0, 1, 2], [3, 4, 5])
    assert made.check(LABELS) is made
    with pytest.raises(DataError, match="of 6 samples, the data has 5"):
        made.check(LABELS[:5])
    with pytest.raises(DataError, match="made for other labels"):
        made.check(LABELS[::-1])


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([[0, 1, 2], [2, 3, 4, 5]], "client 1 holds sample 2, which client 0 holds too"),
        ([[0, 1], [3, 4, 5]], "sample 2 belongs to no client"),
        ([[0, 1, 2, 3, 4, 5], []], "client 1 is empty"),
        ([[0, 1, 2], [3, 4, 6]], "client 1 holds samples 3 to 6; allowed: 0 to 5"),
        ([[-1, 0, 1, 2], [3, 4, 5]], "client 0 holds samples -1 to 2"),
        ([[0, 1, 1, 2], [3, 4, 5]], "client 0 holds a sample twice"),
        ([], "no clients"),
    ],
)
def test_a_partition_that_is_none_is_refused_by_client(clients, message) -> None:
    with pytest.raises(DataError, match=message):
        partition(*clients).check(LABELS)


def test_the_fingerprint_is_of_values_not_of_how_they_are_stored() -> None:
    assert fingerprint(LABELS.astype(np.int8)) == fingerprint(LABELS)
    assert fingerprint(LABELS[:, None]) != fingerprint(LABELS)
    marks = np.array([[0, np.nan], [1, 0]], dtype=np.float32)
    other_nan = marks.copy()
    other_nan.view(np.uint32)[0, 1] = 0xFFC00001
    assert np.isnan(other_nan[0, 1])
    assert fingerprint(other_nan) == fingerprint(marks)
    assert fingerprint(np.nan_to_num(marks)) != fingerprint(marks)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "something else"},
        {"samples": "six"},
        {"samples": 10**18},
        {"samples": -1},
        {"fingerprint": 7},
        {"rule": []},
        {"clients": {"0": [0]}},
        {"clients": [[0, 1, 2], [3, 4, 5.0]]},
        {"clients": [[0, 1, 2], [3, 4, True]]},
        {"clients": [[0, 1, 2], [3, 4, 2**70]]},
        {"clients": [[0, 1, 2], "345"]},
        {"clients": [[0, 1, 2], [3, 4, 4]]},
        {"clients": [[0, 1, 2], [2, 3, 4, 5]]},
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, change) -> None:
    path = tmp_path / "partition.json"
    partition([0, 1, 2], [3, 4, 5]).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=r"partition\.json"):
        Partition.load(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1, 2", b"[]", b"[" * 100_000, b"null"])
def test_a_file_that_is_no_partition_is_refused_by_name(tmp_path, content) -> None:
    path = tmp_path / "partition.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"partition\.json"):
        Partition.load(path)


def test_a_missing_file_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.json"):
        Partition.load(tmp_path / "nowhere.json")


def test_a_partition_is_a_sequence_of_rows_and_prints_its_sizes() -> None:
    made = partition([0, 1, 2, 3], [4], [5])
    assert len(made) == 3
    assert made[0].tolist() == [0, 1, 2, 3]
    assert [rows.tolist() for rows in made] == [[0, 1, 2, 3], [4], [5]]
    assert str(made) == (
        "Partition of 6 samples among 3 clients (made by hand): 1 to 4 each, median 1"
    )


def test_counts_are_of_each_client_and_class() -> None:
    inputs = np.zeros((6, 2))
    data = Dataset.from_arrays(inputs, LABELS, inputs, LABELS)
    assert partition([0, 1, 2, 3], [4, 5]).counts(data).tolist() == [[2, 1, 1], [0, 1, 1]]
    other = Dataset.from_arrays(inputs, LABELS[::-1], inputs, LABELS)
    with pytest.raises(DataError, match="other labels"):
        partition([0, 1, 2, 3], [4, 5]).counts(other)


@given(st.data())
def test_a_restricted_partition_follows_the_rows_that_stay(data) -> None:
    owners = np.array([0, 1, 2, *data.draw(st.lists(st.integers(0, 2), max_size=30))])
    labels = np.arange(len(owners)) % 4
    made = group_owners(owners, 3, labels, {"kind": "made", "measured_skew": 1.0})
    others = st.sets(st.integers(0, len(owners) - 1))
    kept = np.array(sorted({0, 1, 2} | data.draw(others)))
    rest = made.restrict(kept, labels)
    assert rest.check(labels[kept]) is rest
    assert rest.owners.tolist() == owners[kept].tolist()
    skew = round(measure_skew(labels[kept], rest.clients), 6)
    assert rest.rule == {"kind": "made", "kept": len(kept), "measured_skew": skew}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 1, 2], "client 1 keeps none of its 2 samples"),
        ([0, 4, 3], "must ascend within 0 to 5"),
        ([0, 4, 4], "must ascend"),
        ([-1, 4], "must ascend"),
        ([0, 6], "must ascend"),
        ([], "must ascend"),
    ],
)
def test_a_restriction_that_leaves_no_partition_is_refused(rows, message) -> None:
    made = partition([0, 1, 2, 3], [4, 5])
    with pytest.raises(DataError, match=message):
        made.restrict(np.array(rows), LABELS)


def test_a_restriction_needs_the_labels_of_all_rows() -> None:
    with pytest.raises(DataError, match="the data has 2"):
        partition([0, 1, 2], [3, 4, 5]).restrict(np.array([0, 3]), LABELS[[0, 3]])
