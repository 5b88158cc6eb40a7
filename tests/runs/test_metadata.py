"""Every writer of federation.json uses one record, and it is read back into it."""

import math

import pytest

from fedbb.errors import RunError
from fedbb.methods import cbr
from fedbb.records import ClientInfo, Task
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import (
    ClientRecord,
    FederationRecord,
    describe_clients,
    read_federation,
    read_run_recipe,
)
from helpers.small_run import finish, small_recipe

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
    with pytest.raises(RunError, match="is no run folder: it has no recipe"):
        read_run_recipe(RunFolder(tmp_path))


@pytest.mark.parametrize("key", ["samples", "weight", "positives"])
def test_a_client_that_lacks_an_entry_is_damaged(tmp_path, key):
    finish(small_recipe(tmp_path, rounds={"number": 1}), tmp_path / "run")
    content = RunFolder(tmp_path / "run").read_json("federation.json")
    del content["clients"][0][key]
    with pytest.raises(RunError, match=f"federation.json is damaged: KeyError.*{key}"):
        FederationRecord.from_json(content)
