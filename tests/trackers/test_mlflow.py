import os

import pytest

from fedbb.errors import RunError
from fedbb.trackers.export import Feed, export
from fedbb.trackers.registry import MlflowStore
from helpers.tracker_module import HOSTILE, cut, finished, mend, records

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")

# The package warns of its own parts when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore")


def client(folder):
    return mlflow.MlflowClient(f"sqlite:///{folder.resolve() / 'mlflow.db'}")


def runs(folder):
    reader = client(folder)
    return reader.search_runs([reader.get_experiment_by_name("fedbb").experiment_id])


def steps(folder, run, name):
    return [metric.step for metric in client(folder).get_metric_history(run.info.run_id, name)]


def test_the_packages_own_reader_finds_every_round(tmp_path):
    path = finished(tmp_path / "run é")
    export(MlflowStore(tmp_path / "a place é"), path)
    (run,) = runs(tmp_path / "a place é")
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "run é"
    assert run.data.params["method.name"] == "fedavg"
    last = records(path)[-1]["scores"]["test"]
    assert run.data.metrics["test/accuracy"] == last["macro"]["accuracy"]
    assert run.data.metrics["test/recall/plain"] == last["per_class"]["recall"][0]
    assert run.data.metrics["best/round"] >= 1
    assert sum(name.startswith("test/recall/") for name in run.data.metrics) == len(HOSTILE)
    assert steps(tmp_path / "a place é", run, "test/f1") == [1, 2, 3, 4]


def test_a_resumed_run_has_each_step_once(tmp_path):
    path = finished(tmp_path / "run")
    rest = cut(path, 2)
    export(MlflowStore(tmp_path), path)
    (run,) = runs(tmp_path)
    assert run.info.status == "KILLED"
    mend(path, rest)
    assert export(MlflowStore(tmp_path), path) == 2
    assert export(MlflowStore(tmp_path), path) == 0
    (run,) = runs(tmp_path)
    assert run.info.status == "FINISHED"
    assert steps(tmp_path, run, "test/f1") == [1, 2, 3, 4]
    assert steps(tmp_path, run, "final/round") == [4]


def test_a_new_run_of_the_same_name_is_kept_beside_the_old_one(tmp_path):
    path = finished(tmp_path / "run")
    export(MlflowStore(tmp_path), path)
    Feed(MlflowStore(tmp_path), path, is_new=True).end(is_finished=True)
    assert len(runs(tmp_path)) == 2


def test_a_round_of_many_classes_is_more_than_one_batch(tmp_path):
    path = finished(tmp_path / "run", rounds=1)
    tracker = MlflowStore(tmp_path)
    feed = Feed(tracker, path)
    feed.catch_up()
    tracker.record(2, {**{f"test/recall/{number}": 0.5 for number in range(2500)}, "round": 2.0})
    (run,) = runs(tmp_path)
    assert len(run.data.metrics) > 2500
    assert run.data.metrics["round"] == 2


def test_a_store_that_cannot_be_opened_fails_at_once(tmp_path):
    (tmp_path / "mlflow.db").mkdir()
    with pytest.raises(RunError, match=r"unable to open database file"):
        export(MlflowStore(tmp_path), finished(tmp_path / "run"))
