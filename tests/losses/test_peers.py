"""The page docs/losses.md: losses of other libraries beside ours on one batch, and examples."""

import doctest
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedbb.losses.class_balanced import CBLoss
from fedbb.losses.focal import FocalLoss
from fedbb.losses.pnb import PNBLoss
from fedbb.losses.weights import class_weights

FILE = Path(__file__).parents[2] / "docs" / "losses.md"
PAGE = FILE.read_text("utf-8")
COUNTS = [900, 90, 10]
INPUT = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
TARGET = torch.tensor([0, 1, 2, 1])
ROWS = nn.functional.one_hot(TARGET, 3).float()


def monai(name: str, **options) -> nn.Module:
    return getattr(pytest.importorskip("monai.losses"), name)(**options)


def balanced_loss(**options) -> nn.Module:
    library = pytest.importorskip("balanced_loss")
    return library.Loss(samples_per_class=COUNTS, class_balanced=True, **options)


def timm(name: str, **options) -> nn.Module:
    reason = "timm is not installed, or lacks a torchvision that fits"
    library = pytest.importorskip("timm.loss", reason=reason, exc_type=ImportError)
    return getattr(library, name)(**options)


# What each line of the table calls: theirs, and ours.
PAIRS: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
    "torch CE": (
        lambda: nn.CrossEntropyLoss()(INPUT, TARGET),
        lambda: PNBLoss([1, 1, 1])(INPUT, TARGET),
    ),
    "torch CE, weighted": (
        lambda: nn.CrossEntropyLoss(class_weights(counts=COUNTS), reduction="sum")(INPUT, TARGET),
        lambda: (
            CBLoss(COUNTS, reduction="sum")(INPUT, TARGET)
            * (class_weights(counts=COUNTS)[0] / CBLoss(COUNTS).weight[0])
        ),
    ),
    "torch CE, smoothed": (
        lambda: nn.CrossEntropyLoss(label_smoothing=0.1)(INPUT, TARGET),
        lambda: PNBLoss([1, 1, 1], label_smoothing=0.1)(INPUT, TARGET),
    ),
    "torch BCE": (
        lambda: nn.BCEWithLogitsLoss()(INPUT, ROWS),
        lambda: PNBLoss([1, 1, 1], samples=2, task="multilabel")(INPUT, ROWS),
    ),
    "MONAI focal, softmax": (
        lambda: 3 * monai("FocalLoss", to_onehot_y=True, use_softmax=True)(INPUT, TARGET[:, None]),
        lambda: FocalLoss()(INPUT, TARGET),
    ),
    "MONAI focal, sigmoid": (
        lambda: monai("FocalLoss")(INPUT, ROWS),
        lambda: FocalLoss(task="multilabel")(INPUT, ROWS),
    ),
    "balanced-loss CE": (
        lambda: balanced_loss(loss_type="cross_entropy", beta=0.999)(INPUT, TARGET),
        lambda: CBLoss(COUNTS, beta=0.999)(INPUT, TARGET),
    ),
    "balanced-loss BCE": (
        lambda: 3 * balanced_loss(loss_type="binary_cross_entropy", beta=0.999)(INPUT, TARGET),
        lambda: CBLoss(COUNTS, beta=0.999, form="sigmoid")(INPUT, TARGET),
    ),
    "timm CE, smoothed": (
        lambda: timm("LabelSmoothingCrossEntropy", smoothing=0.1)(INPUT, TARGET),
        lambda: PNBLoss([1, 1, 1], label_smoothing=0.1)(INPUT, TARGET),
    ),
    "timm CE, soft targets": (
        lambda: timm("SoftTargetCrossEntropy")(INPUT, ROWS),
        lambda: PNBLoss([1, 1, 1])(INPUT, ROWS),
    ),
}


def told() -> dict[str, float]:
    """Return the number of each line of the page's table."""
    return {
        name: float(value)
        for name, value in re.findall(r"^\| ([^|]+?) \|.*\| (\d+\.\d{4}) \|$", PAGE, re.M)
    }


@pytest.mark.parametrize("name", PAIRS)
def test_our_loss_gives_the_number_of_the_page(name):
    assert PAIRS[name][1]().item() == pytest.approx(told()[name], abs=6e-5)


@pytest.mark.parametrize("name", PAIRS)
def test_the_other_librarys_loss_gives_the_number_of_the_page(name):
    assert PAIRS[name][0]().item() == pytest.approx(told()[name], abs=6e-5)


def test_every_line_of_the_page_is_checked():
    assert list(told()) == list(PAIRS)


def test_the_examples_of_the_page_give_what_they_show():
    found = doctest.testfile(str(FILE), module_relative=False, encoding="utf-8")
    assert found.attempted > 3
    assert found.failed == 0
