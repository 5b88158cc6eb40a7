"""How long a client's round takes by each method, measured side by side on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedbb.data.dataset import Dataset, Examples
from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.models.registry import build_model
from fedbb.records import ClientState, Task
from fedbb.rng import stream, torch_stream
from fedbb.state import snapshot
from fedbb.training.client_dataset import ClientDataset
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import train_client
from fedbb.training.threads import threads


@dataclass(frozen=True)
class Work:
    """What is timed: one epoch on made-up images, by a network, a few times over."""

    model: str
    classes: int
    image_shape: tuple[int, int, int]
    images: int = 64
    repeats: int = 3


def time_methods(methods: Mapping[str, Method], work: Work) -> dict[str, float]:
    """Return the median seconds of a client's round by each method, taken in turns."""
    share = _share(work)
    networks = {name: _network(method, work) for name, method in methods.items()}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    with threads(LocalConfig().threads):
        for turn in range(work.repeats + 1):
            for name in _order(list(methods), turn):
                taken = _time(networks[name], share, methods[name])
                if turn > 0:  # the first turn only warms up
                    seconds[name].append(taken)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def _order(names: list[str], turn: int) -> Sequence[str]:
    return names if turn % 2 == 0 else names[::-1]


def _time(network: NetworkModule, share: ClientDataset, method: Method) -> float:
    start = snapshot(network)
    # With a memory, so that a method that contrasts with one does so from its first round on.
    began = time.perf_counter()
    train_client(
        network, share, TrainJob(0, 1, 0, start), method, LocalConfig(), ClientState(start)
    )
    return time.perf_counter() - began


def _network(method: Method, work: Work) -> NetworkModule:
    with torch_stream(0, "timing"):
        return build_model(
            work.model, work.classes, work.image_shape[0], projection=method.needs.projection
        )


def _share(work: Work) -> ClientDataset:
    rng = stream(0, "timing")
    images = rng.integers(0, 256, (work.images, *work.image_shape), dtype=np.uint8)
    part = Examples(images, rng.integers(0, work.classes, work.images))
    channels, names = work.image_shape[0], tuple(str(number) for number in range(work.classes))
    middle, spread = (0.5,) * channels, (0.25,) * channels
    dataset = Dataset("made up", Task.MULTICLASS, names, part, part, middle, spread)
    return ClientDataset(dataset, np.arange(work.images))
