"""Local training here beside a bare PyTorch loop on the same work, alternating, as ratios."""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from fedbb.data.dataset import Augmentation, Dataset, Examples
from fedbb.methods import fedavg, pnb
from fedbb.models.catalogue import build_model
from fedbb.records import Task
from fedbb.rng import stream, torch_stream
from fedbb.state import snapshot
from fedbb.training.local import train_client
from fedbb.training.plan import Job, LocalPlan, Share

CLASSES = 10


def made_up_images(samples: int) -> Dataset:
    rng = stream(0, "benchmark")
    images = rng.integers(0, 256, (samples, 3, 32, 32), dtype=np.uint8)
    part = Examples(images, rng.integers(0, CLASSES, samples))
    names = tuple(str(number) for number in range(CLASSES))
    still = Augmentation()
    return Dataset("noise", Task.MULTICLASS, names, part, part, (0.5,) * 3, (0.25,) * 3, still)


def bare_loop(model, dataset, plan):
    """What a user writes in an afternoon: all tensors ready, no counts, no checks."""
    images = (torch.from_numpy(dataset.train.images).float() / 255 - 0.5) / 0.25
    labels = torch.from_numpy(dataset.train.labels)
    optimizer = torch.optim.SGD(model.parameters(), plan.lr, plan.momentum, weight_decay=1e-4)
    model.train()
    for batch in torch.randperm(len(labels)).split(plan.batch_size):
        loss = F.cross_entropy(model(images[batch]).logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(name: str, samples: int, repeats: int) -> None:
    dataset, plan = made_up_images(samples), LocalPlan()
    same_layout = replace(plan, channels_last=False)  # the layout of the bare loop
    with torch_stream(0, "benchmark"):
        model = build_model(name, CLASSES, channels=3)
    share, job = Share(dataset, np.arange(samples)), Job(0, 1, 0, snapshot(model))
    works = {
        "bare loop": lambda: bare_loop(model, dataset, plan),
        "fedavg": lambda: train_client(model, share, job, fedavg(), plan),
        "as bare": lambda: train_client(model, share, job, fedavg(), same_layout),
        "pnb": lambda: train_client(model, share, job, pnb(), plan),
    }
    times: dict[str, list[float]] = {label: [] for label in works}
    for repeat in range(repeats + 1):
        for label in sorted(works, reverse=repeat % 2 == 1):
            taken = seconds(works[label])
            if repeat > 0:  # the first turn only warms up
                times[label].append(taken)
    pairs = (("fedavg", "bare loop"), ("as bare", "bare loop"), ("pnb", "fedavg"))
    for label, other in pairs:
        ratios = [one / two for one, two in zip(times[label], times[other], strict=True)]
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        rate = samples / statistics.median(times[label])
        print(
            f"{name:10} {label:7} / {other:9} time ratio {middle:.3f} "
            f"({low:.3f} to {high:.3f}), {rate:,.0f} images/s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, batch 32, {options.repeats} alternating repeats")
    for name, samples in (("small-cnn", 3200), ("resnet11", 640), ("resnet56", 128)):
        compare(name, samples, options.repeats)


if __name__ == "__main__":
    main()
