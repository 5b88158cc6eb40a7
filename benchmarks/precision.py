"""What bf16 brings: the local training of one client in bf16 and in float32, in turns.

One process, one thread and the memory settings of a worker, by the training loop that all clients
use. The order within a pair changes from pair to pair; the interval is a bootstrap's of the median.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import results
from benchmarks.steps import interval, time_pairs
from benchmarks.work import BATCH, CLASSES, SIZE, make_images
from fedbb import Dataset, LocalConfig
from fedbb.methods import fedavg
from fedbb.models.registry import build_model
from fedbb.state import snapshot
from fedbb.training.config import TrainJob
from fedbb.training.local import ClientDataset, train_client
from fedbb.training.threads import keep_freed_memory

PAIRS = {"small-cnn": 40, "resnet11": 20, "resnet56": 10}
BATCHES = 4
INSTRUCTIONS = ("avx512_bf16", "amx_bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(PAIRS), choices=list(PAIRS))
    parser.add_argument("--pairs", type=int, help="by default as many as take a minute or so")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    torch.set_num_threads(1)
    keep_freed_memory()
    models = {model: compare(model, options.pairs or PAIRS[model]) for model in options.models}
    for model, measured in models.items():
        print(f"{model:10} bf16 / float32 images/s {results.format_spread(measured['speed'])}")
    values = {"instructions": bf16_instructions(), "models": models}
    print("written to", results.write("precision", values, options.out))


def compare(model: str, pairs: int) -> dict[str, Any]:
    """Return the ratio of images per second in bf16 to those in float32."""
    pixels, labels = make_images(BATCH * BATCHES)
    data = Dataset.from_arrays(pixels, labels, pixels[:BATCH], labels[:BATCH], normalize=True)
    client = ClientDataset(data, np.arange(len(labels)))
    torch.manual_seed(0)
    network = build_model(model, CLASSES, (3, SIZE, SIZE)).to(memory_format=torch.channels_last)
    job = TrainJob(0, 1, 0, snapshot(network))

    def train(local: LocalConfig) -> None:
        train_client(network, client, job, fedavg(), local)

    cases = [LocalConfig(batch_size=BATCH, precision=name) for name in ("float32", "bf16")]
    plain, half = (np.array(seconds) for seconds in time_pairs(train, cases, pairs))
    return {
        "pairs": pairs,
        "speed": interval(plain / half),
        "float32_images_per_second": round(len(labels) / float(np.median(plain)), 1),
        "bf16_images_per_second": round(len(labels) / float(np.median(half)), 1),
    }


def bf16_instructions() -> list[str]:
    """Return the bf16 instructions of this processor."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return [name for name in INSTRUCTIONS if name in flags]


if __name__ == "__main__":
    main()
