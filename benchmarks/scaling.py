"""What a reply costs the server of a federation, by model size: bytes, CPU seconds and memory.

A model of a given size is packed as for Flower, unpacked, checked and added to the mean, as the
server does with each site's reply. docs/scaling.md multiplies these by the number of sites. CPU
time is taken, not time by the clock, so that a busy machine distorts it less, but it still does.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.child import ROOT

SIZES = (600_000, 11_000_000, 100_000_000)
LAYER = 500_000
"""Numbers in a tensor: a model is made of as many of these as it needs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="numbers of a model")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--alone", type=int, help="measure one size in this process")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure(options.alone, options.repeats)))
        return
    results.expect_quiet(options.out)
    sizes = [_in_a_process(size, options.repeats) for size in options.sizes]
    for size in sizes:
        print(json.dumps(size))
    values = {"repeats": options.repeats, "sizes": sizes}
    print("written to", results.write("scaling", values, options.out))


def _in_a_process(size: int, repeats: int) -> dict[str, Any]:
    words = ["--alone", str(size), "--repeats", str(repeats)]
    command = [sys.executable, "-m", "benchmarks.scaling", *words]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure(size: int, repeats: int) -> dict[str, Any]:
    """Return bytes of a message, seconds of a core for each step, and peak memory."""
    import torch

    from fedbb.records import ModelState
    from fedbb.rounds.replies import check_arrays, check_update
    from fedbb.state import Mixture, pack_arrays, state_from_arrays, state_to_arrays, unpack_arrays

    torch.set_num_threads(1)
    before = _peak()
    parts = [LAYER] * (size // LAYER) + ([size % LAYER] if size % LAYER else [])
    sent = ModelState({f"layer{n}": torch.zeros(part) for n, part in enumerate(parts)}, {})
    like = state_to_arrays(sent)
    seconds: dict[str, list[float]] = {"pack": [], "unpack": [], "check": [], "add": []}
    mixture, message = Mixture(), b""
    for _ in range(repeats):
        marks = [time.process_time()]
        message = pack_arrays(like)
        marks.append(time.process_time())
        arrays = unpack_arrays(message)
        marks.append(time.process_time())
        state = state_from_arrays(check_arrays(arrays, like, "reply"))
        check_update(sent, state, None, "reply")
        marks.append(time.process_time())
        mixture.add(state, 1.0 / repeats)
        marks.append(time.process_time())
        for name, spent in zip(seconds, np.diff(marks).tolist(), strict=True):
            seconds[name].append(spent)
    mixture.total()
    return {
        "numbers": size,
        "bytes": len(message),
        "seconds": {name: round(statistics.median(s), 5) for name, s in seconds.items()},
        "peak_bytes": _peak() - before,
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
