"""How long `fedbb run` takes from its start until training, beyond importing torch.

The run's first round is a single step of two clients, side by side, and the moment taken is when
its record is on disk. From that the seconds of scoring and those that a client trained are taken
off. What is left is the way to the first step, with the merge and the commit still in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, results
from benchmarks.work import BATCH, Work, recipe, save_images

TORCH = [sys.executable, "-c", "import torch"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--models", nargs="+", default=("small-cnn", "resnet56"))
    parser.add_argument("--engine", default="pool", choices=("inline", "pool"))
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    models = {}
    for model in options.models:
        models[model] = measure(model, options.engine, options.repeats)
        beyond, begun = (
            results.format_spread(models[model][key]) for key in ("beyond_torch", "begun")
        )
        print(f"{model:10} first round on disk {beyond} s after importing torch would have ended,")
        print(f"{'':10} {begun} s without its training and scoring,")
        print(
            f"{'':10} {results.format_spread(models[model]['ratio'])} × the time of importing torch"
        )
    values = {"repeats": options.repeats, "engine": options.engine, "models": models}
    print("written to", results.write("start", values, options.out))


def measure(model: str, engine: str, repeats: int) -> dict[str, dict[str, float]]:
    """Return the seconds to the first record and to torch, taken in turns."""
    firsts, torches, working = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        work = Work(model, clients=2, images=BATCH)
        data = save_images(Path(scratch) / "images.npz", work.total)
        file = Path(scratch) / "recipe.json"
        values = recipe(work, data, engine) | {"rounds": {"number": 1}}
        file.write_text(json.dumps(values), encoding="utf-8")
        for repeat in range(repeats + 1):
            torch = _seconds(TORCH)
            first, worked = first_record(file, Path(scratch) / f"run-{repeat}")
            if repeat > 0:  # the first turn fills the file cache
                torches.append(torch)
                firsts.append(first)
                working.append(worked)
    return {
        "first_record": results.spread(firsts),
        "import_torch": results.spread(torches),
        "beyond_torch": results.spread([a - b for a, b in zip(firsts, torches, strict=True)]),
        "begun": results.spread(
            [a - b - c for a, b, c in zip(firsts, torches, working, strict=True)]
        ),
        "ratio": results.ratios(firsts, torches),
    }


def first_record(file: Path, folder: Path) -> tuple[float, float]:
    """Return the seconds from starting `fedbb run` to its first round on disk, and of its work.

    That is what scoring took, and what a client trained in the mean, for they do so side by side.
    """
    cores = str(machine.facts()["cores"])
    program = Path(sys.executable).with_name("fedbb")
    command = [str(program), "run", str(file), "--out", str(folder), "--quiet"]
    began = time.perf_counter()
    process = subprocess.Popen([*command, "--workers", cores])
    lines = folder / "rounds.jsonl"
    while not (lines.exists() and lines.stat().st_size):
        if process.poll() not in (None, 0):
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        time.sleep(0.005)
    taken = time.perf_counter() - began
    process.wait()
    (line,) = lines.read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    trained = record["work"]["busy_seconds"] / len(record["clients"])
    return taken, record["seconds"]["score"] + trained


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
