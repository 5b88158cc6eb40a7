import hashlib

import numpy as np
import pytest

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from fedbb.partition.registry import KINDS, Rule, divide

LABELS = np.arange(240) % 4
SITES = np.array(["west", "east", "north", "south", "hill"])[np.arange(240) % 5]
INPUTS = np.zeros((240, 3), np.float32)
DATA = fedbb.Dataset.from_arrays(INPUTS, LABELS, INPUTS, LABELS, columns={"site": SITES})

PAIRS = {
    "dirichlet": (
        lambda data: fedbb.partition.dirichlet(data, 5, 0.5, seed=3),
        Rule("label-skew", clients=5, concentration=0.5, seed=3),
    ),
    "dirichlet of few": (
        lambda data: fedbb.partition.dirichlet(data, clients=5, concentration=0.5, min_samples=2),
        Rule("label-skew", clients=5, concentration=0.5, min_samples=2),
    ),
    "quantity": (
        lambda data: fedbb.partition.quantity(data, 5, 1.0, seed=3, min_samples=4),
        Rule("quantity-skew", clients=5, concentration=1.0, seed=3, min_samples=4),
    ),
    "iid": (
        lambda data: fedbb.partition.iid(data, clients=7, seed=3),
        Rule("even", clients=7, seed=3),
    ),
    "pathological": (
        lambda data: fedbb.partition.pathological(data, 6, 2, seed=3),
        Rule("pathological", clients=6, classes_per_client=2, seed=3),
    ),
    "pathological with random holders": (
        lambda data: fedbb.partition.pathological(data, 12, 2, seed=3, holders="random"),
        Rule("pathological", clients=12, classes_per_client=2, seed=3, holders="random"),
    ),
    "shards": (
        lambda data: fedbb.partition.shards(data, 6, seed=3),
        Rule("shards", clients=6, shards_per_client=2, seed=3),
    ),
    "by_column": (
        lambda data: fedbb.partition.by_column(data, "site"),
        Rule("column", column="site"),
    ),
    "by_column of fewer": (
        lambda data: fedbb.partition.by_column(data, "site", clients=2, seed=3),
        Rule("column", column="site", clients=2, seed=3),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_function_gives_the_partition_of_a_recipe(name) -> None:
    function, rule = PAIRS[name]
    made = function(DATA)
    assert made == divide(rule, DATA.train, DATA.task)
    assert isinstance(made, fedbb.Partition)
    assert made.check(LABELS) is made


FROZEN = {
    "label-skew": ("06b495d7420287ad", "aef761a2bcc0ddef"),
    "quantity-skew": ("664fab1202732979", "dfb64f827ab20210"),
    "even": ("e7895d2de6b1c8c5", "21fb0ff03576cf62"),
    "pathological": ("57bcc7a102503e25", "b012bfbb45cc1544"),
    "shards": ("dc7c6629d0fcf58d", "c506c60e0f310579"),
}
FIELDS = {"concentration": 0.5, "classes_per_client": 3, "shards_per_client": 3}


@pytest.mark.parametrize("kind", FROZEN)
def test_the_split_of_a_seed_stays_what_it_was(kind) -> None:
    """Partitions are shared by seed between machines and versions."""
    fields = {name: value for name, value in FIELDS.items() if name in KINDS[kind].needs}
    found = []
    for name in ("digits", "digit-mosaic"):
        data = load_dataset(name)
        owners = divide(Rule(kind, clients=7, seed=3, **fields), data.train, data.task).owners
        found.append(hashlib.sha256(owners.astype("<i8").tobytes()).hexdigest()[:16])
    assert tuple(found) == FROZEN[kind]


def test_all_public_functions_are_tested_and_documented() -> None:
    functions = set(fedbb.partition.__all__) - {"Partition", "Skew", "skew"}
    others = {"from_owners", "from_file", "from_flwr"}
    assert functions == {name.split()[0] for name in PAIRS} | others
    for name in functions:
        public = getattr(fedbb.partition, name)
        assert callable(public)
        assert all(f"{part}:" in public.__doc__ for part in ("Args", "Returns", "Raises"))


def test_owners_are_numbers_or_names() -> None:
    by_number = fedbb.partition.from_owners(DATA, np.arange(240) % 3)
    assert by_number.owners.tolist() == (np.arange(240) % 3).tolist()
    assert by_number.rule == {"kind": "owners", "measured_skew": 0.0}
    by_name = fedbb.partition.from_owners(DATA, SITES.tolist())
    by_column = fedbb.partition.by_column(DATA, "site")
    assert by_name.owners.tolist() == by_column.owners.tolist()


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        ([0, 1], r"owners has shape \(2,\); needed: \(240,\)"),
        (np.arange(240) % 3 - 1, "owners runs from -1 to 1"),
        (np.arange(240) % 2 * 2, "client 1 has no example"),
        (np.arange(240) % 2 * 10**12, "to 1000000000000 and client 1 has no example"),
    ],
)
def test_owners_that_do_not_fit_are_refused(owners, message) -> None:
    with pytest.raises(DataError, match=message):
        fedbb.partition.from_owners(DATA, owners)


def test_a_saved_partition_is_read_for_its_own_data(tmp_path) -> None:
    made = fedbb.partition.iid(DATA, 3)
    made.save(tmp_path / "shared.json")
    assert fedbb.partition.from_file(DATA, tmp_path / "shared.json") == made
    other = fedbb.Dataset.from_arrays(INPUTS, LABELS[::-1], INPUTS, LABELS)
    with pytest.raises(DataError, match="made for other labels"):
        fedbb.partition.from_file(other, tmp_path / "shared.json")


def test_multi_label_data_is_divided_by_one_label_of_each() -> None:
    marks = (np.arange(720).reshape(240, 3) % 4 == 0).astype(np.float32)
    data = fedbb.Dataset.from_arrays(INPUTS, marks, INPUTS, marks)
    for name, (function, _) in PAIRS.items():
        if "column" not in name:
            assert sum(function(data).sizes) == 240


class Partitioner:
    """What flwr-datasets' partitioners have: a number of partitions, and rows of each."""

    def __init__(self, *parts):
        self.parts, self.num_partitions = parts, len(parts)

    def load_partition(self, client):
        return {"row": self.parts[client]}


def test_a_partitioner_of_another_library_divides_the_rows() -> None:
    data = toy(6)
    made = fedbb.partition.from_flwr(data, Partitioner([0, 3], [1, 2, 5], [4]), row="row")
    assert made.owners.tolist() == [0, 1, 1, 0, 2, 1]
    assert made.rule["partitioner"] == "Partitioner"
    for parts, message in [
        (([0, 1], [1, 2, 3, 4, 5]), "in a partition already"),
        (([0, 1], [2, 3, 4]), "row 5 is in no partition"),
        (([0, 1, 2, 3, 4, 5], []), "partition 1 is empty"),
        (([0, 1], [2, 3, 4, 6]), "the data has 6 training"),
    ]:
        with pytest.raises(DataError, match=message):
            fedbb.partition.from_flwr(data, Partitioner(*parts), row="row")


def test_partitioners_of_flower_datasets_divide_the_data() -> None:
    library = pytest.importorskip("flwr_datasets.partitioner", reason="no flwr-datasets here")
    data = fedbb.data.load_dataset("digits")
    chosen = library.DirichletPartitioner(num_partitions=4, partition_by="label", alpha=0.5, seed=0)
    made = fedbb.partition.from_flwr(data, chosen)
    assert len(made) == 4
    sizes = [len(chosen.load_partition(client)) for client in range(4)]
    assert made.sizes == sizes


def toy(number):
    x = np.zeros((number, 2), np.float32)
    return fedbb.Dataset.from_arrays(x, np.arange(number) % 2, x, np.arange(number) % 2)


@pytest.mark.parametrize("clients", ["3", 2.5, [3]])
def test_a_number_of_clients_that_is_no_whole_number_is_refused(clients):
    with pytest.raises(DataError, match="it must be a whole number"):
        fedbb.partition.iid(load_dataset("digits"), clients=clients)


def test_data_that_is_no_data_set_is_refused():
    with pytest.raises(DataError, match=r"data is of type list; needed: a fedbb\.Dataset"):
        fedbb.partition.dirichlet([0, 1], clients=2, concentration=0.5)
