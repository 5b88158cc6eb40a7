"""How time and memory grow with clients and with samples.

Clients: the same images among ever more clients, of whom at most 50 train in a round, so that what
grows is bookkeeping. Samples: the same clients with ever more images, all of which train. Every
case is a run in processes of its own; time is from its start, memory of all its processes together.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.child import ROOT
from benchmarks.growth_case import save_small_images
from benchmarks.memory import PeakMemory

CHOSEN = 50


@dataclass(frozen=True)
class Case:
    """A federation: numbers of clients and samples, size of the images, rounds to run."""

    clients: int
    samples: int
    size: int = 8
    rounds: int = 3
    model: str = "small-cnn"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", type=int, default=(50, 10, 1_000, 10_000, 100_000))
    parser.add_argument("--samples", type=int, default=200_000, help="divided among the clients")
    parser.add_argument("--factors", nargs="+", type=int, default=(1, 2, 4))
    parser.add_argument("--base", type=int, default=10_000, help="samples that factors multiply")
    parser.add_argument("--model", default="small-cnn")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", default="pool", choices=("inline", "pool"))
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    by_clients = [Case(number, options.samples, model=options.model) for number in options.clients]
    by_samples = [
        Case(CHOSEN, factor * options.base, size=32, model=options.model)
        for factor in options.factors
    ]
    values = {
        "chosen": CHOSEN,
        "repeats": options.repeats,
        "clients": measure(by_clients, options.repeats, options.engine),
        "samples": measure(by_samples, options.repeats, options.engine),
    }
    report(values)
    print("written to", results.write("growth", values, options.out))


def measure(cases: list[Case], repeats: int, engine: str) -> list[dict[str, Any]]:
    """Return time and memory of each case, and their ratios to the first."""
    taken: list[list[dict[str, Any]]] = [[] for _ in cases]
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(repeats):
            for number in _turn(len(cases), repeat):
                data = Path(scratch) / f"{cases[number].samples}-{cases[number].size}.npz"
                if not data.exists():
                    save_small_images(data, cases[number].samples, cases[number].size)
                taken[number].append(run(cases[number], data, engine))
    summaries = [
        {**asdict(case), **_summary(records)} for case, records in zip(cases, taken, strict=True)
    ]
    for summary in summaries:
        summary["ratio"] = {
            key: round(summary[key]["median"] / summaries[0][key]["median"], 3)
            for key in ("first", "round_per_step", "peak")
        }
    return summaries


def _turn(number: int, repeat: int) -> list[int]:
    places = list(range(number))
    return places[::-1] if repeat % 2 else places


def run(case: Case, data: Path, engine: str, *, watch: bool = True) -> dict[str, Any]:
    """Run a case; return seconds to its first round, of a later one by step, and peak memory.

    Without `watch` the memory is not sampled, which costs the kernel time of its own.
    """
    given = {
        "--data": data,
        "--model": case.model,
        "--clients": case.clients,
        "--chosen": CHOSEN,
        "--rounds": case.rounds,
        "--engine": engine,
    }
    arguments = [str(part) for pair in given.items() for part in pair]
    command = [sys.executable, "-m", "benchmarks.growth_case", *arguments]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with PeakMemory(process.pid) if watch else nullcontext() as memory:
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command[2:])} ended with {process.returncode}")
    shown = [json.loads(line) for line in output.splitlines()]
    assert all(record["clients"] == min(CHOSEN, case.clients) for record in shown)
    ends = [record["at"] for record in shown]
    later = [after - before for before, after in itertools.pairwise(ends)]
    return {
        "first": ends[0] - began,
        "round": statistics.median(later),
        "round_per_step": statistics.median(later) / shown[-1]["steps"],
        **({} if memory is None else {"peak": memory.peak / 2**30}),
    }


def _summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: results.spread([record[key] for record in records]) for key in records[0]}


def report(values: dict[str, Any]) -> None:
    """Print each case's ratios to the first one, with the memory they stand for."""
    for series in ("clients", "samples"):
        for case in values[series]:
            ratio = case["ratio"]
            print(
                f"{case['clients']:7,} clients, {case['samples']:9,} samples: "
                f"first round × {ratio['first']:.2f} ({case['first']['median']:.1f} s), "
                f"step × {ratio['round_per_step']:.2f}, "
                f"memory × {ratio['peak']:.2f} ({case['peak']['median']:.2f} GB)"
            )


if __name__ == "__main__":
    main()
