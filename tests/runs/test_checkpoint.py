import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedbb.errors import RunError
from fedbb.records import ClientState, ModelState
from fedbb.runs.checkpoint import (
    Checkpoint,
    ClientStateFiles,
    load_checkpoint,
    save_checkpoint,
    save_checksummed,
)
from fedbb.state import digest, find_mismatch

STATE = ModelState(
    params={
        "weight": torch.arange(6.0).reshape(2, 3),
        "half": torch.tensor([1.5, -0.0], dtype=torch.bfloat16),
        "scalar": torch.tensor(3.0, dtype=torch.float64),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
    },
    buffers={"steps": torch.tensor(7), "flags": torch.tensor([True, False])},
)


def written(path, checkpoint):
    save_checkpoint(path, checkpoint)
    return path.read_bytes()


def test_saving_and_loading_is_the_identity_for_every_dtype(tmp_path):
    save_checkpoint(tmp_path / "a.safetensors", Checkpoint(4, STATE))
    loaded = load_checkpoint(tmp_path / "a.safetensors")
    assert loaded.round == 4
    assert digest(loaded.state) == digest(STATE)
    assert loaded.state.params.keys() == STATE.params.keys()
    assert loaded.state.buffers["steps"].dtype == torch.int64


def test_anyone_can_open_the_file_with_safetensors(tmp_path):
    save_checkpoint(tmp_path / "a.safetensors", Checkpoint(1, STATE))
    assert torch.equal(
        load_file(tmp_path / "a.safetensors")["params.weight"], STATE.params["weight"]
    )


def test_every_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "flipped.safetensors"
    content = written(path, Checkpoint(2, STATE))
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="cannot be used"):
            load_checkpoint(path)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "short.safetensors"
    content = written(path, Checkpoint(2, STATE))
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(RunError, match="cannot be used"):
            load_checkpoint(path)


def test_random_bytes_are_refused_without_running_them(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "noise.safetensors"
    for length in (0, 1, 8, 100, 5000):
        path.write_bytes(rng.bytes(length))
        with pytest.raises(RunError, match="cannot be used"):
            load_checkpoint(path)


def test_a_header_that_claims_to_be_huge_is_refused(tmp_path):
    path = tmp_path / "huge.safetensors"
    content = written(path, Checkpoint(2, STATE))
    path.write_bytes((2**63 - 1).to_bytes(8, "little") + content[8:])
    with pytest.raises(RunError, match="cannot be used"):
        load_checkpoint(path)


def craft(tmp_path, entries, data, memories="{}"):
    """Write a safetensors file by hand, with a checksum that holds: anybody can compute one."""
    blank = {"sha256": "0" * 64, "round": "2", "memories": memories}
    header = json.dumps({"__metadata__": blank, **entries}, separators=(",", ":")).encode()
    content = len(header).to_bytes(8, "little") + header + data
    checksum = hashlib.sha256(content).hexdigest().encode()
    path = tmp_path / "crafted.safetensors"
    path.write_bytes(content.replace(b"0" * 64, checksum, 1))
    return path


def tensor_entry(begin, end, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "entries",
    [
        {"params.a": tensor_entry(0, 8), "params.b": tensor_entry(4, 12)},
        {"params.a": tensor_entry(0, 8), "params.b": tensor_entry(0, 8)},
        {"params.a": tensor_entry(0, 2**62, (2**60,))},
        {"params.a": tensor_entry(0, 8, (2**62,))},
        {"params.a": tensor_entry(8, 0)},
        {"params.a": tensor_entry(0, 8, (-1, -2))},
        {"params.a": tensor_entry(0, 8, dtype="F33")},
        {"params.a": 7},
    ],
)
def test_a_crafted_file_whose_checksum_holds_is_refused(tmp_path, entries):
    with pytest.raises(RunError, match="cannot be used"):
        load_checkpoint(craft(tmp_path, entries, bytes(12)))


def test_client_states_are_of_a_round_up_to_that_of_the_checkpoint(tmp_path):
    entries = {"params.a": tensor_entry(0, 8)}
    path = craft(tmp_path, entries, bytes(8), '{"0": 0, "1": 2}')
    assert load_checkpoint(path).state_rounds == {0: 0, 1: 2}
    for seen in ("3", "-1", "true", "1.0", '"1"', "null", "[1]"):
        path = craft(tmp_path, entries, bytes(8), f'{{"0": 0, "1": {seen}}}')
        with pytest.raises(RunError, match="the state of client 1 is from round"):
            load_checkpoint(path)


def test_a_name_that_looks_like_a_path_is_only_a_name(tmp_path):
    (tmp_path / "inner").mkdir()
    path = craft(tmp_path / "inner", {"params.../canary": tensor_entry(0, 8)}, bytes(8))
    state = load_checkpoint(path).state
    assert list(state.params) == ["../canary"]
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["crafted.safetensors", "inner"]
    # A run whose network has other names refuses the state (test_resume.py).
    assert find_mismatch(STATE, state) is not None


def test_a_pickle_in_place_of_a_checkpoint_is_never_executed(tmp_path):
    canary = tmp_path / "canary"
    path = tmp_path / "evil.safetensors"
    path.write_bytes(f"cos\nsystem\n(S'touch {canary}'\ntR.".encode())
    with pytest.raises(RunError, match="cannot be used"):
        load_checkpoint(path)
    assert not canary.exists()


def test_a_safetensors_file_of_someone_else_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(RunError, match="no checksum of fedbb"):
        load_checkpoint(tmp_path / "foreign.safetensors")


def test_a_checkpoint_tells_the_round_of_every_memory(tmp_path):
    save_checkpoint(tmp_path / "a.safetensors", Checkpoint(4, STATE, {0: 4, 7: 2}))
    assert load_checkpoint(tmp_path / "a.safetensors").state_rounds == {0: 4, 7: 2}


MODEL = ModelState({"weight": torch.arange(6.0).reshape(2, 3)}, {"steps": torch.tensor(7)})
MOMENTUM = {"momentum": {"weight": torch.ones(2, 3)}}


@pytest.mark.parametrize("model", [None, MODEL])
@pytest.mark.parametrize("optimizer", [{}, MOMENTUM])
def test_client_states_come_back_as_they_were(tmp_path, model, optimizer):
    ClientStateFiles(tmp_path).save(3, 5, ClientState(model, optimizer))
    loaded = ClientStateFiles(tmp_path).load(3, 5)
    assert (loaded.model is None) == (model is None)
    assert loaded.optimizer.keys() == optimizer.keys()
    if loaded.model is not None:
        assert digest(loaded.model) == digest(MODEL)
    for kind, tensors in loaded.optimizer.items():
        assert torch.equal(tensors["weight"], MOMENTUM[kind]["weight"])


def test_a_file_with_momentum_from_before_other_optimizers_still_loads(tmp_path):
    tensors = {"momentum.layer.weight": torch.ones(2, 3)}
    save_checksummed(tmp_path / "client-000003-round-000005.safetensors", tensors, {})
    loaded = ClientStateFiles(tmp_path).load(3, 5)
    assert loaded.model is None
    assert torch.equal(loaded.optimizer["momentum"]["layer.weight"], torch.ones(2, 3))


def test_the_oldest_states_of_one_client_are_dropped(tmp_path):
    store = ClientStateFiles(tmp_path)
    for client in (1, 2):
        for number in (4, 9, 10):
            store.save(client, number, ClientState(MODEL))
    store.keep_newest(1, 2)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [
        *(f"client-000001-round-{number:06d}.safetensors" for number in (9, 10)),
        *(f"client-000002-round-{number:06d}.safetensors" for number in (4, 9, 10)),
    ]


def test_a_state_that_is_missing_or_damaged_is_refused_by_name(tmp_path):
    store = ClientStateFiles(tmp_path)
    with pytest.raises(RunError, match="client-000001-round-000002"):
        store.load(1, 2)
    store.save(1, 2, ClientState(MODEL))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="client-000001-round-000002"):
        store.load(1, 2)


def test_a_state_of_another_client_or_round_is_refused(tmp_path):
    files = ClientStateFiles(tmp_path)
    files.save(3, 7, ClientState(None, {}))
    first = next(tmp_path.iterdir())
    for client, number in ((4, 7), (3, 8)):
        copied = tmp_path / f"client-{client:06d}-round-{number:06d}.safetensors"
        copied.write_bytes(first.read_bytes())
        with pytest.raises(RunError, match="it is of client '3' in round '7'"):
            files.load(client, number)
    assert files.load(3, 7) == ClientState(None, {})


def test_a_folder_that_cannot_be_written_is_told_with_the_round(tmp_path):
    with pytest.raises(RunError, match="round 2 could not be saved"):
        ClientStateFiles(tmp_path / "missing").save(1, 2, ClientState(MODEL))


def test_states_of_rounds_that_are_not_named_are_dropped(tmp_path):
    store = ClientStateFiles(tmp_path)
    for client in (1, 11):
        for number in (4, 9, 10):
            store.save(client, number, ClientState(MODEL))
    store.keep_only(1, {4, 10, 77})
    for number in (4, 10):
        assert digest(store.load(1, number).model) == digest(MODEL)
    with pytest.raises(RunError, match="client-000001-round-000009"):
        store.load(1, 9)
    assert store.load(11, 9).optimizer == {}
