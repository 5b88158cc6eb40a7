"""Every writer of federation.json uses one record, and it is read back into it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedbb.errors import RunError
from fedbb.methods import cbr
from fedbb.recipes.reader import make_recipe
from fedbb.records import ClientInfo, Task
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import (
    MANY_CLIENTS,
    ClientRecord,
    ClientTable,
    FederationRecord,
    describe_clients,
    read_federation,
    read_run_recipe,
    set_up_folder,
)
from helpers.small_run import finish, small_recipe

SMALL = {"data": {"name": "digits"}, "method": {"name": "fedavg"}}
CLIENT_KEYS = [
    "client",
    "samples",
    "dispersion",
    "weight",
    "weight_by_samples",
    "loss_weight",
    "positives",
]
KEYS = [
    "data",
    "task",
    "classes",
    "train",
    "scored",
    "positives",
    "clients",
    "notes",
    "scored_cases",
]


@pytest.mark.parametrize("privacy", ["none", "masked"])
def test_what_a_run_writes_reads_back_as_the_record_it_was_written_from(tmp_path, privacy):
    finish(small_recipe(tmp_path, privacy=privacy, rounds={"number": 1}), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    content, record = folder.read_json("federation.json"), read_federation(folder)
    assert record.to_json() == content
    assert list(content) == KEYS
    assert list(content["clients"][0]) == (CLIENT_KEYS if privacy == "none" else ["client"])
    assert (record.train, record.scored) == (60, {"test": 20})
    assert [client.client for client in record.clients] == [0, 1, 2]


def test_a_server_knows_sizes_dispersions_and_weights_of_its_clients():
    infos = [ClientInfo(0, 10, 0.2), ClientInfo(1, 30, 0.1)]
    records = describe_clients(infos, cbr())
    assert [record.weight_by_samples for record in records] == [0.25, 0.75]
    assert sum(record.weight for record in records) == pytest.approx(1)
    assert {record.loss_weight for record in records} == {None}


def test_clients_without_any_sample_have_no_weight():
    records = describe_clients([ClientInfo(0, 0, 0.0), ClientInfo(1, 0, 0.0)], cbr())
    assert [record.weight for record in records] == [0.0, 0.0]


@pytest.mark.parametrize(
    "change",
    [{"task": "regression"}, {"train": float("inf")}, {"clients": [{"name": "a"}]}, {"clients": 3}],
)
def test_a_damaged_description_is_refused_by_name(tmp_path, change):
    record = FederationRecord("toy", Task.MULTICLASS, ("a",), 1, {}, None, (ClientRecord(0),))
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    folder.write_json("federation.json", record.to_json())
    assert read_federation(folder) == record
    folder.write_json("federation.json", record.to_json() | change)
    with pytest.raises(RunError, match=r"federation\.json is damaged"):
        read_federation(folder)


def test_clients_without_class_counts_are_hidden_and_class_counts_undefined():
    known = ClientRecord(0, 4, None, 0.5, 0.5, positives=(3.0, 1.0))
    sized, private = ClientRecord(1, 4, None, 0.5, 0.5), ClientRecord(2)
    record = FederationRecord(
        "toy", Task.MULTICLASS, ("a", "b"), 8, {}, None, (known, sized, private)
    )
    assert [vars(client) for client in record.known] == [vars(known)]
    assert record.hidden == 2
    assert all(math.isnan(count) for count in record.class_counts)


def test_a_folder_without_a_recipe_is_no_run_folder(tmp_path):
    with pytest.raises(RunError, match="is not a run folder: it has no recipe"):
        read_run_recipe(RunFolder(tmp_path))


@pytest.mark.parametrize("key", ["samples", "weight", "positives"])
def test_a_client_that_lacks_an_entry_is_damaged(tmp_path, key):
    finish(small_recipe(tmp_path, rounds={"number": 1}), tmp_path / "run")
    content = RunFolder(tmp_path / "run").read_json("federation.json")
    del content["clients"][0][key]
    with pytest.raises(RunError, match=f"federation.json is damaged: KeyError.*{key}"):
        FederationRecord.from_json(content)


def table_of(number, classes=3, **changes):
    rng = np.random.default_rng(0)
    return replace(
        ClientTable(
            samples=rng.integers(1, 50, number),
            weight=rng.random(number),
            weight_by_samples=rng.random(number),
            dispersion=np.where(rng.random(number) < 0.5, np.nan, rng.random(number)),
            loss_weight=np.full(number, np.nan),
            positives=rng.integers(0, 9, (number, classes)).astype(float),
        ),
        **changes,
    )


def federation_of(clients):
    return FederationRecord(
        data="x",
        task=Task.MULTICLASS,
        classes=("a", "b", "c"),
        train=7,
        scored={"test": 3},
        positives=None,
        clients=clients,
    )


@pytest.mark.parametrize("changes", [{}, {"positives": None}])
def test_many_clients_are_kept_as_arrays_and_read_back(tmp_path, changes):
    folder, made = RunFolder(tmp_path), federation_of(table_of(MANY_CLIENTS, **changes))
    set_up_folder(folder, make_recipe(SMALL), lambda: made)
    assert folder.read_json("federation.json")["clients"] == {
        "file": "clients.npz",
        "number": MANY_CLIENTS,
    }
    found = read_federation(folder)
    assert list(found.clients) == list(made.clients)
    assert found.clients[-1] == made.clients[MANY_CLIENTS - 1]
    assert len(found.known) == (0 if changes else MANY_CLIENTS)


def test_few_clients_stay_in_the_json_file(tmp_path):
    folder, made = RunFolder(tmp_path), federation_of(table_of(MANY_CLIENTS - 1))
    set_up_folder(folder, make_recipe(SMALL), lambda: made)
    assert not folder.file("clients.npz").exists()
    assert list(map(vars, read_federation(folder).clients)) == list(map(vars, made.clients))


def test_damaged_client_arrays_are_refused_in_words(tmp_path):
    folder, made = RunFolder(tmp_path), federation_of(table_of(MANY_CLIENTS))
    set_up_folder(folder, make_recipe(SMALL), lambda: made)
    table_of(MANY_CLIENTS - 1).save(folder)
    with pytest.raises(RunError, match=r"clients\.npz is damaged: samples has shape"):
        read_federation(folder)
    table_of(MANY_CLIENTS, classes=2).save(folder)
    with pytest.raises(RunError, match="positives has shape"):
        read_federation(folder)
    folder.file("clients.npz").write_bytes(b"no array")
    with pytest.raises(RunError, match=r"clients\.npz"):
        read_federation(folder)
    folder.file("clients.npz").unlink()
    with pytest.raises(RunError, match=r"clients\.npz"):
        read_federation(folder)
