import json
import struct

import pytest

from fedbb.trackers import export as exporting
from fedbb.trackers.export import Feed
from fedbb.trackers.registry import WandbOffline
from helpers.tracker_module import HOSTILE, cut, finished, mend, records

wandb = pytest.importorskip("wandb", reason="wandb is not installed")
from wandb.proto.wandb_internal_pb2 import Record  # noqa: E402

BLOCK, HEADER, WHOLE, FIRST, LAST = 32768, 7, 1, 2, 4


def export(tracker, path):
    """Export a run and wait for wandb's process to write the last of it, as its end would."""
    exporting.export(tracker, path)
    wandb.teardown()


def offline_file(folder):
    (found,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    return found


def pieces(data):
    """Yield the messages of an offline file: a LevelDB log behind a header of seven bytes."""
    place, message = HEADER, b""
    while place + HEADER <= len(data):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        place += HEADER
        before = b"" if kind in (WHOLE, FIRST) else message
        message = before + data[place : place + length]
        place += length
        if kind in (WHOLE, LAST):
            yield message


def read(folder):
    """Return the run's record and, of every step, its values, by wandb's own message types."""
    found = []
    for piece in pieces(offline_file(folder).read_bytes()):
        record = Record()
        record.ParseFromString(piece)
        found.append(record)
    (run,) = [record.run for record in found if record.WhichOneof("record_type") == "run"]
    history = [record.history for record in found if record.WhichOneof("record_type") == "history"]
    return run, [values(step.item) for step in history]


def values(items):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_the_offline_file_holds_every_round(tmp_path):
    path = finished(tmp_path / "run")
    export(WandbOffline(tmp_path), path)
    run, history = read(tmp_path)
    assert (run.project, run.display_name) == ("fedbb", "run")
    assert run.run_id.startswith("run-")
    assert values(run.config.update)["method.name"] == "fedavg"
    assert [step["_step"] for step in history] == [1, 2, 3, 4]
    last = records(path)[-1]["scores"]["test"]
    assert history[-1]["test/accuracy"] == last["macro"]["accuracy"]
    assert history[-1]["test/recall/plain"] == last["per_class"]["recall"][0]
    assert sum(name.startswith("test/recall/") for name in history[0]) == len(HOSTILE)


def test_a_resumed_run_has_each_step_once(tmp_path):
    path = finished(tmp_path / "run")
    other = finished(tmp_path / "x-run")
    rest = cut(path, 2)
    export(WandbOffline(tmp_path / "here"), path)
    mend(path, rest)
    export(WandbOffline(tmp_path / "here"), path)
    _, history = read(tmp_path / "here")
    assert [step["round"] for step in history] == [1, 2, 3, 4]
    export(WandbOffline(tmp_path / "here"), other)
    export(WandbOffline(tmp_path / "here"), path)
    assert len(list((tmp_path / "here" / "wandb").glob("offline-run-*"))) == 2


def test_a_run_that_breaks_off_keeps_its_rounds(tmp_path):
    path = finished(tmp_path / "run")
    broken_off = Feed(WandbOffline(tmp_path), path)
    for record in records(path)[:2]:
        broken_off.record(record)
    broken_off.end(is_finished=False)
    wandb.teardown()
    _, history = read(tmp_path)
    assert {"test/f1", "round"} <= set(history[0])
