"""What goes over the wire comes back to the bit, and bytes from strangers are only ever refused."""

import contextlib
import io
import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import ReplyError
from fedbb.evaluation.metrics import score_multiclass
from fedbb.flower.app import serde
from fedbb.flower.app.serde import (
    PACKED,
    STATE,
    Outline,
    TrainRequest,
    pack_cases,
    pack_client_info,
    pack_scores,
    pack_scoring,
    pack_state,
    pack_train_request,
    pack_update,
    read_arrays,
    unpack_cases,
    unpack_client_info,
    unpack_record,
    unpack_scores,
    unpack_shift,
    unpack_state,
    unpack_train_request,
    unpack_update,
)
from fedbb.records import ClientInfo, ClientUpdate, ModelState, Task
from fedbb.state import digest, snapshot
from fedbb.training.config import TrainJob
from helpers.toy import toy_network

STATE_OF_TOY = snapshot(toy_network())
OUTLINE = Outline("npz", Task.MULTICLASS, ("a", "b", "ü"), 1, "fedbb 1, torch 2")


def encoded(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def received(data, stype="numpy.ndarray"):
    return read_arrays({"x": Array(dtype="float32", shape=(1,), stype=stype, data=data)})["x"]


def test_a_state_comes_back_to_the_bit_with_parameters_and_buffers_apart():
    back = unpack_state(RecordDict({STATE: pack_state(STATE_OF_TOY)}))
    assert digest(back) == digest(STATE_OF_TOY)
    assert back.buffers["first.1.num_batches_tracked"].shape == ()
    assert back.buffers["first.1.num_batches_tracked"].dtype == torch.int64


@pytest.mark.parametrize(
    "array",
    [
        np.array(5, np.int64),
        np.array([-0.0, 1e-45, 3e38], np.float32),
        np.zeros((0, 3), np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[::-1],
        np.ones((2, 2), ">f8"),
    ],
)
def test_any_plain_array_is_read_as_it_was(array):
    back = received(encoded(array, allow_pickle=False))
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    assert back.flags.c_contiguous
    assert back.flags.writeable


def test_equal_names_in_parameters_and_buffers_do_not_meet():
    state = ModelState({"x": torch.ones(2)}, {"x": torch.zeros(2)})
    back = unpack_state(RecordDict({STATE: pack_state(state)}))
    assert digest(back) == digest(state)


class Canary:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_pickled_code_is_refused_and_not_run(tmp_path):
    canary = tmp_path / "canary"
    objects = encoded(np.array([Canary(canary)], dtype=object), allow_pickle=True)
    for stype in ("numpy.ndarray", "pickle", ""):
        with pytest.raises(ReplyError):
            received(objects, stype)
    assert not canary.exists()


def header(text, version=b"\x01\x00"):
    body = text.encode()
    return b"\x93NUMPY" + version + len(body).to_bytes(2, "little") + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        encoded(np.ones(5))[:-1],
        encoded(np.ones(5)) + b"\x00",
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693952,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1), }") + b"\x00" * 4,
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, -5), }"),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + b"\x00" * 8,
        header("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }") + b"\x00" * 4,
        header("__import__('os')"),
        header("(" * 5000),
        header("{'descr'"),
        header("{}", version=b"\x09\x09"),
        b"PK\x03\x04" + b"\x00" * 30,
    ],
    ids=range(14),
)
def test_bytes_that_are_no_plain_array_are_refused(data):
    with pytest.raises(ReplyError, match="x cannot be read"):
        received(data)


@given(
    st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: encoded(np.ones(2)) + tail)
)
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(ReplyError):
        assert isinstance(received(data), np.ndarray)


@given(st.integers(0, 127 + 8), st.integers(0, 255))
def test_any_byte_of_an_array_changed_is_read_or_refused(place, value):
    data = bytearray(encoded(np.ones(1)))
    data[place] = value
    with contextlib.suppress(ReplyError):
        assert received(bytes(data)).nbytes <= len(data)


@pytest.mark.parametrize("dispersion", [None, 0.25])
def test_a_card_comes_back(dispersion):
    figures, outline = unpack_client_info(pack_client_info(ClientInfo(2, 30, dispersion), OUTLINE))
    assert figures == {"client": 2, "samples": 30, "dispersion": dispersion}
    assert outline == OUTLINE


@pytest.mark.parametrize(("mean", "std"), [(None, None), ((), ()), ((0.1, 0.5), (1.0, 0.2))])
def test_an_outline_with_its_inputs_comes_back(mean, std):
    given = replace(OUTLINE, channels=2, shape=(2, 4, 4), dtype="uint8", mean=mean, std=std)
    assert unpack_client_info(pack_client_info(ClientInfo(2, 30), given))[1] == given
    assert Outline.from_json(json.loads(json.dumps(given.to_json()))) == given


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", "a"),
        ("classes", [1, 2]),
        ("channels", 1.0),
        ("channels", True),
        ("task", "x"),
        ("dtype", "object"),
        ("mean", [math.nan]),
        ("mean", [0.1, 0.2]),
        ("mean", ["a"]),
        ("mean", []),
        ("std", [0.0]),
    ],
)
def test_an_outline_that_makes_no_sense_is_refused(key, value):
    content = pack_client_info(ClientInfo(0, 1), replace(OUTLINE, mean=(0.1,), std=(1.0,)))
    content["outline"] = ConfigRecord({**content["outline"], key: value})
    with pytest.raises(ReplyError, match="outline cannot be read"):
        unpack_client_info(content)


@pytest.mark.parametrize("record", ["facts", "outline"])
def test_a_card_that_lacks_a_part_is_refused(record):
    content = pack_client_info(ClientInfo(0, 1), OUTLINE)
    del content[record]
    with pytest.raises(ReplyError, match=f"{record} is missing"):
        unpack_client_info(content)


def test_a_state_travels_as_one_array_whatever_its_number_of_tensors():
    record = pack_state(STATE_OF_TOY)
    assert len(record) == 1
    tensors = len(STATE_OF_TOY.params) + len(STATE_OF_TOY.buffers)
    assert len(unpack_record(RecordDict({STATE: record}), STATE)) == tensors > 1


def test_a_state_too_long_for_a_setting_travels_as_an_array_that_flower_can_cut(monkeypatch):
    small = pack_state(STATE_OF_TOY)
    monkeypatch.setattr(serde, "LONGEST_SETTING", 10)
    large = pack_state(STATE_OF_TOY)
    assert (type(small), type(large)) == (ConfigRecord, ArrayRecord)
    for record in (small, large):
        assert digest(unpack_state(RecordDict({STATE: record}))) == digest(STATE_OF_TOY)


def test_a_state_that_is_not_packed_is_refused_with_the_reason():
    record = ArrayRecord({"params.x": Array(np.ones(2))})
    blank = ArrayRecord({PACKED: Array(np.ones(2))})
    text = ConfigRecord({PACKED: "text"})
    for content in (record, blank, text, ConfigRecord(), ArrayRecord()):
        with pytest.raises(ReplyError, match="same version of fedbb"):
            unpack_state(RecordDict({STATE: content}))


@pytest.mark.parametrize("since", [None, 4])
def test_a_job_comes_back(since):
    order = TrainRequest(TrainJob(1, 5, 2**32 - 1, STATE_OF_TOY), 2, "name-ab12", since)
    back = unpack_train_request(pack_train_request(order, pack_state(STATE_OF_TOY)))
    assert (back.attempt, back.run, back.since) == (2, "name-ab12", since)
    assert (back.job.client, back.job.round, back.job.seed) == (1, 5, 2**32 - 1)
    assert digest(back.job.state) == digest(STATE_OF_TOY)


def test_a_job_without_its_facts_is_refused():
    content = pack_train_request(
        TrainRequest(TrainJob(1, 5, 0, STATE_OF_TOY), 1, "x", None), pack_state(STATE_OF_TOY)
    )
    del content["facts"]["seed"]
    with pytest.raises(ReplyError, match="job cannot be read"):
        unpack_train_request(content)


@pytest.mark.parametrize(("kept", "lost"), [(True, False), (False, True)])
def test_an_update_comes_back_with_what_its_site_remembers(kept, lost):
    order = TrainRequest(TrainJob(1, 5, 0, STATE_OF_TOY), 2, "x", None)
    update = ClientUpdate(1, STATE_OF_TOY, 7, 9.5, 0.1 + 0.2, 1.25)
    answered = unpack_update(pack_update(update, order, kept=kept, lost=lost))
    reply = answered.reply
    assert (reply.client, reply.round, reply.attempt, reply.steps) == (1, 5, 2, 7)
    assert (reply.train_loss, reply.seconds) == (0.1 + 0.2, 1.25)
    assert (answered.kept, answered.lost) == (kept, lost)


def scores():
    rng = np.random.default_rng(0)
    return {
        "test": score_multiclass(rng.normal(size=(20, 3)), rng.integers(0, 2, 20)),
        "validation": score_multiclass(rng.normal(size=(9, 3)), rng.integers(0, 3, 9)),
    }


def test_scores_come_back_with_undefined_classes():
    back = unpack_scores(pack_scores(scores()), 3)
    for name, found in scores().items():
        assert back[name].samples == found.samples
        assert back[name].macro == pytest.approx(found.macro, abs=0, nan_ok=True)
        for metric, vector in found.per_class.items():
            np.testing.assert_array_equal(back[name].per_class[metric], vector)
    assert math.isnan(back["test"].per_class["recall"][2])


def test_the_classes_figures_travel_as_one_vector():
    content = pack_scores(scores())
    assert list(content["vectors.test"]) == ["vectors"]
    assert content["vectors.test"]["vectors"].shape == (12,)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples", 0),
        ("samples", -3),
        ("samples", 2.0),
        ("accuracy", 1.5),
        ("accuracy", -0.1),
        ("f1", math.inf),
        ("auroc", 1),
    ],
)
def test_scores_that_cannot_be_true_are_refused(key, value):
    content = pack_scores(scores())
    content["facts.test"] = MetricRecord({**content["facts.test"], key: value})
    with pytest.raises(ReplyError, match="scores: test"):
        unpack_scores(content, 3)


@pytest.mark.parametrize("vector", [np.ones(11), np.ones(12, np.float32), np.full(12, 1.1)])
def test_a_vector_of_scores_that_does_not_fit_is_refused(vector):
    content = pack_scores(scores())
    content["vectors.test"] = ArrayRecord({"vectors": Array(vector)})
    with pytest.raises(ReplyError, match="scores: test"):
        unpack_scores(content, 3)


def test_counts_of_cases_and_shifts_come_back():
    counts = np.arange(12).reshape(2, 2, 3)
    np.testing.assert_array_equal(unpack_cases(pack_cases(counts), (2, 2, 3)), counts)
    state = pack_state(ModelState({}, {}))
    np.testing.assert_array_equal(unpack_shift(pack_scoring(state, np.ones(3)), 3), np.ones(3))
    assert unpack_shift(pack_scoring(state), 3) is None
    with pytest.raises(ReplyError, match="no 2 numbers"):
        unpack_shift(pack_scoring(state, np.ones(3)), 2)


@pytest.mark.parametrize(
    "counts",
    [
        np.zeros((2, 1, 3), dtype=np.int64),
        np.full((2, 1, 3), -1),
        np.full((2, 1, 3), 2**62),
        np.ones((2, 1, 3)),
        np.ones((2, 1, 4), dtype=np.int64),
    ],
)
def test_counts_of_cases_that_cannot_be_true_are_refused(counts):
    with pytest.raises(ReplyError, match="cases: "):
        unpack_cases(pack_cases(counts), (2, 1, 3))


def test_scores_without_test_data_are_refused_and_unknown_sets_ignored():
    with pytest.raises(ReplyError, match="none on test data"):
        unpack_scores(RecordDict(), 3)
    content = pack_scores({**scores(), "more": scores()["test"]})
    assert list(unpack_scores(content, 3)) == ["test", "validation"]
