"""Rounds of fedbb's engines beside a bare PyTorch loop on the same work, taken in turns.

Each variant lives in a process of its own that waits while another one works. After a round to warm
up the turns go forth and back (A B C C B A …), and a ratio is of two rounds of the same turn.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import machine, results
from benchmarks.child import Child
from benchmarks.variant import VARIANTS
from benchmarks.work import Work, save_images

MODELS = ("small-cnn", "resnet11", "resnet56")
QUICK = {"resnet56": 100}
"""Images of a client where `--quick` takes fewer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the images for resnet56")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--repeats", type=int, default=6, help="an even number is fairest")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--images", type=int, default=500, help="of each client")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    measured = {}
    for model in options.models:
        images = QUICK.get(model, options.images) if options.quick else options.images
        work = Work(model, options.clients, min(images, options.images))
        measured[model] = measure(work, options.variants, options.repeats)
        report(model, measured[model])
    values = {"repeats": options.repeats, "quick": options.quick, "models": measured}
    print("written to", results.write("rounds", values, options.out))


def measure(work: Work, variants: list[str], repeats: int) -> dict[str, Any]:
    """Return the times of each variant, and their ratios to the first."""
    cores = machine.facts()["cores"]
    taken: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        data = save_images(Path(scratch) / "images.npz", work.total)
        children = {
            variant: stack.enter_context(_child(variant, work, data, cores)) for variant in variants
        }
        for turn in range(repeats + 1):
            for variant in variants if turn % 2 else reversed(variants):
                record = children[variant].ask()
                assert record["steps"] == work.steps, f"{variant} took {record['steps']} steps"
                if turn > 0:  # the first turn only warms up
                    taken[variant].append(record)
    return {
        "clients": work.clients,
        "images": work.images,
        "cores": cores,
        "variants": {name: _summary(name, taken, work, cores) for name in variants},
    }


def _child(variant: str, work: Work, data: Path, cores: int) -> Child:
    given = {
        "--model": work.model,
        "--clients": work.clients,
        "--images": work.images,
        "--cores": cores,
        "--data": data,
        "--folder": data.parent / f"run-{variant}",
    }
    arguments = [str(part) for pair in given.items() for part in pair]
    return Child("benchmarks.variant", [variant, *arguments])


def _summary(
    name: str, taken: dict[str, list[dict[str, Any]]], work: Work, cores: int
) -> dict[str, Any]:
    records = taken[name]
    seconds = [record["seconds"] for record in records]
    reference = [record["seconds"] for record in next(iter(taken.values()))]
    summary: dict[str, Any] = {
        "ratio": results.ratios(seconds, reference),
        "seconds": results.spread(seconds),
        "images_per_second": results.spread([work.total / one for one in seconds]),
        "loss": [round(record["loss"], 5) for record in records],
    }
    if all("busy" in record for record in records):
        workers = cores if name == "pool" else 1
        summary["outside_training"] = results.spread(
            [1 - record["busy"] / (workers * record["train"]) for record in records]
        )
    return summary


def report(model: str, measured: dict[str, Any]) -> None:
    """Print the ratios of one network, and how many images a second they stand for."""
    for name, variant in measured["variants"].items():
        rate = variant["images_per_second"]["median"]
        outside = variant.get("outside_training")
        shown = "" if outside is None else f", outside training {outside['median']:.1%}"
        ratio = results.format_spread(variant["ratio"])
        print(f"{model:10} {name:7} time {ratio} of the first, {rate:,.0f} images/s{shown}")


if __name__ == "__main__":
    main()
