"""What a user may choose of NIH ChestX-ray14, and the names of its findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedbb.data.images.loader import Unreadable

CLASSES = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)


@dataclass(frozen=True)
class NihOptions:
    """How to read the films, from the published files or from an .npz file.

    `images` is the folder that holds the files, in folders below it or not; by default that of the
    table. `split` is a CSV file with the columns image and split (train, test; what `leave_out`
    names is used nowhere). Without it the published lists decide if they lie beside the table, else
    a share of the patients is for testing. `size` is 150 for files and unchanged for arrays unless
    it is given. Of each part at most `n_train` and `n_test` films are used.
    """

    images: Path | None = None
    split: Path | None = None
    leave_out: tuple[str, ...] = ("val",)
    test_share: float = 0.2
    size: int | None = None
    channels: Literal[1, 3] = 1
    n_train: int | None = None
    n_test: int | None = None
    unreadable: Unreadable = "refuse"
