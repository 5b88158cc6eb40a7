"""How many images to score at once: batches of 64 and of 256, in turns, and the bits of the logits.

One process and one thread, as in a worker, with the memory settings of a worker. The order within a
pair changes from pair to pair; the interval is a bootstrap's of the median of the ratios.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import results
from benchmarks.steps import interval, time_pairs
from benchmarks.work import CLASSES, SIZE, make_images
from fedbb import Dataset
from fedbb.evaluation.metrics import Scorer
from fedbb.models.registry import build_model
from fedbb.training.threads import keep_freed_memory

PAIRS = {"small-cnn": 40, "lenet": 40, "mlp": 40, "linear": 40, "resnet11": 15, "resnet56": 5}
SMALL, LARGE = 64, 256
IMAGES = 1_000
"""Not a multiple of either batch size, so that a partial batch is among them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(PAIRS), choices=list(PAIRS))
    parser.add_argument("--pairs", type=int, help="by default as many as take a minute or so")
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    torch.set_num_threads(1)
    keep_freed_memory()
    models = {}
    for model in options.models:
        models[model] = compare(model, options.pairs or PAIRS[model], options.images)
        measured = models[model]
        print(
            f"{model:10} {SMALL} / {LARGE}: {results.format_spread(measured['ratio'], 3)} of the "
            f"time, {measured['different']} of {measured['logits']} logits differ, by "
            f"{measured['largest_difference']:.1e} at most"
        )
    values = {"images": options.images, "models": models}
    print("written to", results.write("scoring", values, options.out))


def compare(model: str, pairs: int, number: int) -> dict[str, Any]:
    """Return the ratio of the times of both batch sizes, and how far their logits differ."""
    pixels, labels = make_images(number)
    data = Dataset.from_arrays(pixels, labels, pixels, labels, normalize=True)
    torch.manual_seed(0)
    network = build_model(model, CLASSES, (3, SIZE, SIZE)).to(memory_format=torch.channels_last)
    large = Scorer(network, data, {}, LARGE)
    scorers = {SMALL: replace(large, batch_size=SMALL), LARGE: large}

    def score(size: int) -> np.ndarray:
        return scorers[size].predict(data.test, 0, number)

    difference = np.abs(score(SMALL) - score(LARGE))
    small, big = (np.array(seconds) for seconds in time_pairs(score, (SMALL, LARGE), pairs))
    return {
        "pairs": pairs,
        "ratio": interval(small / big),
        "images_per_second": round(number / float(np.median(big)), 1),
        "logits": difference.size,
        "different": int(np.count_nonzero(difference)),
        "largest_difference": float(difference.max()),
    }


if __name__ == "__main__":
    main()
