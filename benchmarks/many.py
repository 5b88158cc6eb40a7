"""Up to a million clients: time to the first round and memory, in one process and in the pool.

50 clients of one or a few images each train in a round, so that what is measured is bookkeeping:
partition, label counts, records of clients, run folder. Time is from the start of the process.
Memory is sampled in a run whose times are not used.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.growth import CHOSEN, Case, run
from benchmarks.growth_case import save_small_images

CLIENTS = (1_000, 100_000, 1_000_000)
ENGINES = ("inline", "pool")
LEAST_SAMPLES = 200_000

GOALS = {100_000: (5.0, None), 1_000_000: (15.0, 2.0)}
"""Most seconds to the first round, and most memory in GiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", type=int, default=CLIENTS)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--samples", type=int, default=LEAST_SAMPLES, help="or one of each client")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    cases = measure(options)
    report(cases)
    values = {"chosen": CHOSEN, "repeats": max(1, options.repeats), "cases": cases}
    print("written to", results.write("many", values, options.out))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return time and memory of each number of clients with each engine, taken in turns."""
    keys = [(clients, engine) for clients in options.clients for engine in options.engines]
    taken: dict[tuple[int, str], list[dict[str, Any]]] = {key: [] for key in keys}
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(options.repeats + 1):
            for clients, engine in keys if repeat % 2 else reversed(keys):
                samples = max(options.samples, clients)
                data = Path(scratch) / f"{samples}.npz"
                if not data.exists():
                    save_small_images(data, samples, 8)
                case = Case(clients, samples, rounds=2)
                done = run(case, data, engine, watch=repeat == 0)
                taken[clients, engine].append(done)
    return [
        {
            "clients": clients,
            "samples": max(options.samples, clients),
            "engine": engine,
            "first": results.spread([record["first"] for record in timed or [watched]]),
            "later": results.spread([record["round"] for record in timed or [watched]]),
            "peak": watched["peak"],
        }
        for (clients, engine), (watched, *timed) in taken.items()
    ]


def report(cases: list[dict[str, Any]]) -> None:
    """Print time and memory of each case, and whether they keep to the goals."""
    for case in cases:
        seconds, memory = GOALS.get(case["clients"], (None, None))
        missed = [
            f"more than {most} {unit}"
            for value, most, unit in (
                (case["first"]["median"], seconds, "s"),
                (case["peak"], memory, "GiB"),
            )
            if most is not None and value > most
        ]
        print(
            f"{case['clients']:9,} clients, {case['engine']:6} "
            f"first round after {results.format_spread(case['first'], 1)} s, "
            f"later {results.format_spread(case['later'])} s, {case['peak']:.2f} GiB "
            + ", ".join(missed)
        )


if __name__ == "__main__":
    main()
