"""A process that does one variant's rounds, one for each line it is sent, and tells their times.

Started by `rounds.py`, which keeps several of them waiting and asks them in turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.work import Work, recipe

VARIANTS = ("bare", "inline", "pool")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--model", default="small-cnn")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where a run may write")
    answer(rounds(parser.parse_args()))


def rounds(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Return the endless rounds of the variant that the options name."""
    work = Work(options.model, options.clients, options.images)
    if options.variant == "bare":
        from benchmarks.bare import bare_rounds

        return bare_rounds(work, options.data, options.cores)
    return fedbb_rounds(work, options)


def fedbb_rounds(work: Work, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield steps, loss and inner seconds of each round of a run, its commit to disk included."""
    from fedbb.recipes.reader import make_recipe
    from fedbb.runs.runner import run

    made = make_recipe(recipe(work, options.data, options.variant))
    workers = {"workers": options.cores} if options.variant == "pool" else {}
    for record in run(made, options.folder, **workers):
        clients = record["clients"]
        yield {
            "steps": sum(client["steps"] for client in clients),
            "loss": sum(client["train_loss"] for client in clients) / len(clients),
            **record["seconds"],
            "busy": record["work"]["busy_seconds"],
        }


def answer(made: Iterator[dict[str, Any]]) -> None:
    """Do a round for each line of standard input, and answer it with a line of JSON."""
    for _ in sys.stdin:
        began = time.perf_counter()
        record = next(made)
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, **record}), flush=True)


if __name__ == "__main__":
    main()
