"""Data sets: built-in ones, those of files, and those made of torch data sets and arrays."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbb.data.dataset import Dataset as Dataset
    from fedbb.data.examples import Examples as Examples
    from fedbb.data.registry import CATALOGUE as CATALOGUE
    from fedbb.data.registry import load_dataset as load_dataset
    from fedbb.data.statistics import ChannelSums as ChannelSums
    from fedbb.data.statistics import channel_sums as channel_sums
    from fedbb.data.statistics import federated_statistics as federated_statistics
    from fedbb.data.teacher_file import save_teacher as save_teacher
    from fedbb.data.transforms import Augmentation as Augmentation

_HOMES = {
    "Augmentation": "fedbb.data.transforms",
    "CATALOGUE": "fedbb.data.registry",
    "ChannelSums": "fedbb.data.statistics",
    "Dataset": "fedbb.data.dataset",
    "Examples": "fedbb.data.examples",
    "channel_sums": "fedbb.data.statistics",
    "federated_statistics": "fedbb.data.statistics",
    "load_dataset": "fedbb.data.registry",
    "save_teacher": "fedbb.data.teacher_file",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Imported on first use: the readers of all data sets need pydantic, Pillow and scikit-learn.
    if name not in _HOMES:
        raise AttributeError(f"module 'fedbb.data' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
