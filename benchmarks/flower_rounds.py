"""Rounds on Flower beside the pool engine: the same recipe on real nodes of this machine.

The SuperLink has TLS and node keys, each site is a node of its own, and all share the cores with
the server. A federation is started for each run, so that the way from `up` to the first round is
measured as often; the pool's way begins with its process too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.work import Work, recipe, save_images
from fedbb.flower.admin.local import LocalFederation
from fedbb.runs.folder import RunFolder

CASES = ("small-cnn:3:500", "small-cnn:10:500", "resnet56:3:32")
"""Network, sites, and images of each site: few for the large network, whose many tensors have to
travel, so that training does not take most of the time."""

GOALS = dict(zip(CASES, (2.5, 8.0, 4.0), strict=True))
"""Most seconds of a later round on two cores."""

MOST_RATIO, MOST_FIRST = 6.0, 20.0
"""A later round of the first case beside the pool's, and seconds from `up` to its first round."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=CASES, help="network:sites:images")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4, help="rounds; the first is shown apart")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    cases = []
    for case in options.cases:
        model, sites, images = case.split(":")
        cases.append(measure(Work(model, int(sites), int(images)), options))
        print(json.dumps(cases[-1]))
        print(*judge(case, cases[-1]), sep="\n")
    values = {"repeats": options.repeats, "rounds": options.rounds, "cases": cases}
    print("written to", results.write("flower", values, options.out))


def measure(work: Work, options: argparse.Namespace) -> dict[str, Any]:
    """Return times and bytes of a case, on Flower and in the pool in turns."""
    taken: dict[str, list[dict[str, Any]]] = {"pool": [], "Flower": []}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        data = save_images(place / "images.npz", work.total)
        values = {**recipe(work, data, "auto"), "rounds": {"number": options.rounds}}
        for repeat in range(options.repeats):
            for name in taken if repeat % 2 else reversed(taken):
                folder = place / f"{name}-{repeat}"
                taken[name].append(VARIANTS[name](values, work.clients, folder))
    # Where a site did not answer in time, the model is another one, and rightly so.
    whole = [run for runs in taken.values() for run in runs if not run["absent"]]
    shas = {run["sha256"] for run in whole}
    if len(shas) != 1:
        raise SystemExit(f"the engines disagree: {shas}")
    return {
        "sites": work.clients,
        "images": work.images,
        "model": work.model,
        **{name: _summary(runs) for name, runs in taken.items()},
    }


def judge(name: str, case: dict[str, Any]) -> list[str]:
    """Return what was reached of the goals for a case."""
    later, first = case["Flower"]["later"]["median"], case["Flower"]["first"]["median"]
    ratio = later / case["pool"]["later"]["median"]
    goals = [(f"later round {later:.2f} s", later, GOALS.get(name))]
    if name == CASES[0]:
        goals.append((f"ratio to the pool {ratio:.2f}", ratio, MOST_RATIO))
        goals.append((f"first round after {first:.1f} s", first, MOST_FIRST))
    return [
        f"{name}: {what}, goal {goal:g}: {'reached' if value <= goal else 'MISSED'}"
        for what, value, goal in goals
        if goal is not None
    ]


def on_flower(values: dict[str, Any], sites: int, folder: Path) -> dict[str, Any]:
    """Run a recipe on a federation of its own."""
    began = time.monotonic()
    with LocalFederation(folder / "federation", sites) as federation:
        up = time.monotonic() - began
        path = folder / "run"
        config = {"recipe": json.dumps(values), "folder": str(path), "wait": 300.0}
        number = federation.submit(None, config)
        first = _until_first_round(path, began)
        state = federation.wait_for(number, 600)
        if state.status != "finished:completed":
            raise SystemExit(f"the run on Flower ended as {state.status}: {state.details}")
    return {**_run(path), "up": up, "first": first, "sent": state.sent, "received": state.received}


def in_pool(values: dict[str, Any], sites: int, folder: Path) -> dict[str, Any]:
    """Run a recipe by the pool engine, in a process of its own."""
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps(values), encoding="utf-8")
    path = folder / "run"
    began = time.monotonic()
    command = [sys.executable, "-m", "fedbb", "run", str(folder / "recipe.json"), "--quiet"]
    with subprocess.Popen([*command, "--out", str(path)]) as process:
        first = _until_first_round(path, began, process)
    if process.returncode:
        raise SystemExit("the run in the pool failed")
    return {**_run(path), "first": first}


VARIANTS = {"pool": in_pool, "Flower": on_flower}


def _until_first_round(
    path: Path, began: float, process: subprocess.Popen[bytes] | None = None
) -> float:
    lines = path / "rounds.jsonl"
    while not (lines.exists() and lines.stat().st_size):
        if process is not None and process.poll():
            raise SystemExit("the run in the pool failed before its first round")
        if time.monotonic() - began > 600:
            raise SystemExit(f"no round in {path} after ten minutes")
        time.sleep(0.02)
    return time.monotonic() - began


def _run(path: Path) -> dict[str, Any]:
    folder = RunFolder(path)
    records = folder.records()
    seconds = [sum(record["seconds"].values()) for record in records]
    absent = [{"round": r["round"], **absence} for r in records for absence in r["absent"]]
    sha256 = folder.read_json("summary.json")["sha256"]
    return {"later": seconds[1:], "sha256": sha256, "absent": absent}


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    later = [seconds for run in runs for seconds in run["later"]]
    rounds = len(runs[0]["later"]) + 1
    summary = {
        "later": results.spread(later),
        "first": results.spread([run["first"] for run in runs]),
        "absent": [absence for run in runs for absence in run["absent"]],
    }
    if "up" in runs[0]:
        summary["up"] = results.spread([run["up"] for run in runs])
        # Flower counts what nodes received and sent over the whole run, cards and app included.
        summary["bytes_per_round"] = {
            "to sites": round(runs[0]["sent"] / rounds),
            "from sites": round(runs[0]["received"] / rounds),
        }
    return summary


if __name__ == "__main__":
    main()
