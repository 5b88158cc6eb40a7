import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedbb.errors import RecipeError
from fedbb.trackers import registry
from fedbb.trackers.registry import TRACKERS, Kind, MlflowStore, make_tracker
from helpers.tracker_module import Memory


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("tensorbord", "tracker 'tensorbord' is unknown; did you mean tensorboard?"),
        ("", "tracker '' is unknown; known: tensorboard, mlflow, wandb"),
        ("=here", "is unknown"),
        ("tensorboard=", "must have the form NAME or NAME=FOLDER"),
    ],
)
def test_a_wrong_name_is_refused_with_what_is_known(wanted, message):
    with pytest.raises(RecipeError) as caught:
        make_tracker(wanted)
    assert message in str(caught.value)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    assert find_spec("no_such_package") is None
    monkeypatch.setitem(TRACKERS, "mlflow", Kind("no_such_package", lambda _: Memory()))
    with pytest.raises(RecipeError, match=r'pip install "fedbb\[mlflow\]"'):
        make_tracker("mlflow")


def test_the_folder_is_the_one_given_or_tracking(monkeypatch):
    places = []
    monkeypatch.setitem(registry.TRACKERS, "memory", Kind("json", places.append))
    make_tracker("memory")
    make_tracker("memory=there/a=b")
    assert places == [Path("tracking"), Path("there/a=b")]


@pytest.mark.parametrize("name", ["what?", "100%", "no#1"])
def test_a_folder_that_mlflow_would_misread_is_refused(tmp_path, name):
    with pytest.raises(RecipeError, match=r"choose one without \?, %, #"):
        MlflowStore(tmp_path / name)


def test_every_tracker_is_an_extra_of_its_own():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    for name, kind in TRACKERS.items():
        assert any(needed.startswith(kind.package) for needed in extras[name])
