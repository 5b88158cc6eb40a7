"""What PNB adds to a training step: single steps by the plain loss and by PNB, in turns.

One process, one thread, one batch, the memory format and memory settings of a worker. The order
within a pair changes from pair to pair; the interval is a bootstrap's of the median of the ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import results
from benchmarks.work import BATCH, CLASSES, SIZE, make_images
from fedbb.imbalance import count_labels
from fedbb.methods import fedavg, pnb
from fedbb.models.registry import build_model
from fedbb.records import Task
from fedbb.training.config import LocalConfig
from fedbb.training.loop import LocalOptimizer
from fedbb.training.threads import keep_freed_memory

PAIRS = {"small-cnn": 600, "resnet11": 300, "resnet56": 150}
LOSS_PAIRS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(PAIRS), choices=list(PAIRS))
    parser.add_argument("--pairs", type=int, help="by default as many as take a minute or so")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    torch.set_num_threads(1)
    keep_freed_memory()
    models: dict[str, Any] = {}
    for model in options.models:
        models[model] = {}
        for task in Task:
            measured = compare(model, task, options.pairs or PAIRS[model])
            models[model][str(task)] = measured
            report(model, task, measured)
    print("written to", results.write("steps", {"models": models}, options.out))


def compare(model: str, task: Task, pairs: int) -> dict[str, Any]:
    """Return the ratio of a PNB step to a plain one, and what the losses cost by themselves."""
    images, targets = _batch(task)
    losses = [_bind(method, task) for method in (fedavg(), pnb())]
    torch.manual_seed(0)
    network = build_model(model, CLASSES, (3, SIZE, SIZE)).to(memory_format=torch.channels_last)
    network.train()
    descent = LocalOptimizer(network, LocalConfig(), lr=1e-6)

    def step(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        value = loss(network(images).logits, targets)
        value.item()
        descent.zero_grad()
        value.backward()
        descent.step()

    logits = torch.randn(BATCH, CLASSES, requires_grad=True)

    def alone(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        value = loss(logits, targets)
        value.item()
        value.backward()

    plain, balanced = time_pairs(step, losses, pairs)
    plain_alone, balanced_alone = time_pairs(alone, losses, max(20, min(LOSS_PAIRS, 10 * pairs)))
    added = float(np.median(balanced_alone) - np.median(plain_alone))
    return {
        "pairs": pairs,
        "ratio": interval(np.array(balanced) / np.array(plain)),
        "step_microseconds": round(float(np.median(plain)) * 1e6, 1),
        "loss_alone_microseconds": {
            "plain": round(float(np.median(plain_alone)) * 1e6, 1),
            "pnb": round(float(np.median(balanced_alone)) * 1e6, 1),
        },
        "loss_alone_share": round(added / float(np.median(plain)), 5),
    }


def _batch(task: Task) -> tuple[Tensor, Tensor]:
    pixels, labels = make_images(BATCH)
    images = (torch.from_numpy(pixels).float() / 255 - 0.5) / 0.25
    return images.contiguous(memory_format=torch.channels_last), torch.from_numpy(
        _targets(labels, task)
    )


def _targets(labels: np.ndarray, task: Task) -> np.ndarray:
    """Return labels of one class each, or of that class and the next one."""
    if task is Task.MULTICLASS:
        return labels
    marks = np.zeros((len(labels), CLASSES), dtype=np.float32)
    rows = np.arange(len(labels))
    marks[rows, labels] = marks[rows, (labels + 1) % CLASSES] = 1
    return marks


def _bind(method: Any, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
    labels = np.repeat(np.arange(CLASSES), np.arange(5, 5 + CLASSES))
    return method.loss.bind(count_labels(_targets(labels, task), task, CLASSES), task)


def time_pairs(
    work: Callable[[Any], None], cases: Sequence[Any], pairs: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of the work for the first case and for the second, taken in turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    warm = max(2, pairs // 20)
    for pair in range(pairs + warm):
        for place in (0, 1) if pair % 2 else (1, 0):
            began = time.perf_counter()
            work(cases[place])
            if pair >= warm:
                seconds[place].append(time.perf_counter() - began)
    return seconds


def interval(values: np.ndarray, draws: int = 2000) -> dict[str, float]:
    """Return the median of some values with a bootstrap interval that holds 95 of 100 medians."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (draws, len(values))), axis=1)
    least, most = np.quantile(medians, (0.025, 0.975))
    middle = float(np.median(values))
    return {"median": round(middle, 5), "least": round(least, 5), "most": round(most, 5)}


def report(model: str, task: Task, measured: dict[str, Any]) -> None:
    """Print the ratio of one network and task."""
    ratio, share = results.format_spread(measured["ratio"], 4), measured["loss_alone_share"]
    print(f"{model:10} {task!s:10} PNB step / plain step {ratio}; the losses alone {share:+.2%}")


if __name__ == "__main__":
    main()
