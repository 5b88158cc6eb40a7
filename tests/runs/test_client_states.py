import pytest
import torch

from fedbb.errors import RunError
from fedbb.records import ClientState, ModelState
from fedbb.runs.client_states import ClientStateFiles
from fedbb.state import digest

MODEL = ModelState({"weight": torch.arange(6.0).reshape(2, 3)}, {"steps": torch.tensor(7)})
MOMENTUM = {"weight": torch.ones(2, 3)}


@pytest.mark.parametrize("model", [None, MODEL])
@pytest.mark.parametrize("momentum", [None, MOMENTUM])
def test_memories_come_back_as_they_were(tmp_path, model, momentum):
    ClientStateFiles(tmp_path).save(3, 5, ClientState(model, momentum))
    loaded = ClientStateFiles(tmp_path).load(3, 5)
    assert (loaded.model is None) == (model is None)
    assert (loaded.momentum is None) == (momentum is None)
    if loaded.model is not None:
        assert digest(loaded.model) == digest(MODEL)
    if loaded.momentum is not None:
        assert torch.equal(loaded.momentum["weight"], MOMENTUM["weight"])


def test_the_oldest_memories_of_one_client_are_forgotten(tmp_path):
    store = ClientStateFiles(tmp_path)
    for client in (1, 2):
        for number in (4, 9, 10):
            store.save(client, number, ClientState(MODEL))
    store.forget(1, kept=2)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [
        *(f"client-000001-round-{number:06d}.safetensors" for number in (9, 10)),
        *(f"client-000002-round-{number:06d}.safetensors" for number in (4, 9, 10)),
    ]


def test_a_memory_that_is_missing_or_damaged_is_refused_by_name(tmp_path):
    store = ClientStateFiles(tmp_path)
    with pytest.raises(RunError, match="client-000001-round-000002"):
        store.load(1, 2)
    store.save(1, 2, ClientState(MODEL))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="client-000001-round-000002"):
        store.load(1, 2)


def test_a_folder_that_cannot_be_written_is_told_with_the_round(tmp_path):
    with pytest.raises(RunError, match="round 2 could not be saved"):
        ClientStateFiles(tmp_path / "missing").save(1, 2, ClientState(MODEL))
