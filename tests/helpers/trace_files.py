"""The files of fedbb that a steady round passes through, counted by Python's profiler.

    PYTHONPATH=src:tests python -m helpers.trace_files [-v]

traces the third round of a small run: inline, and on Flower with both sides in one process, where
each site stays open between messages as in its worker process. The numbers are those of
ARCHITECTURE.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import fedbb
from fedbb.flower.app.server import serve
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.site import OPEN_SITES
from fedbb.flower.app.transport import GridTransport
from fedbb.runs.runner import run
from helpers.flower_loopback import open_loopback, take_identity
from helpers.small_run import small_recipe

PACKAGE = Path(fedbb.__file__).parent
SITES = 3
BEFORE = 2
"""Rounds that are not traced, in which modules are loaded and data is prepared."""


def trace_round(rounds: Iterator) -> tuple[list[str], int, int]:
    """Return the files of the next round after the first ones, changes of file, and calls."""
    for _ in range(BEFORE):
        next(rounds)
    visited: dict[str, None] = {}
    walk = [""]
    calls = 0

    def watch(frame, event, argument):
        nonlocal calls
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(PACKAGE)):
            calls += 1
            visited[name] = None
            if walk[-1] != name:
                walk.append(name)

    sys.setprofile(watch)
    try:
        next(rounds)
    finally:
        sys.setprofile(None)
    files = [str(Path(name).relative_to(PACKAGE)) for name in visited]
    return files, len(walk) - 1, calls


def trace_inline(folder: Path) -> tuple[list[str], int, int]:
    """Trace a round in this process."""
    return trace_round(run(small_recipe(folder), folder / "run"))


def trace_flower(folder: Path) -> tuple[list[str], int, int]:
    """Trace a round on Flower, the server and three sites in this process."""
    recipe = small_recipe(folder)
    OPEN_SITES.limit = SITES
    grid = open_loopback(recipe, SITES, state=str(folder / "state"))
    grid.run_id = 1
    settings = RunSettings(recipe, folder / "run", wait=5.0)
    return trace_round(serve(GridTransport(grid, poll=0.01), settings))


def main() -> None:
    """Print the counts, and with -v the files in the order of the first visit."""
    for name, trace in (("inline", trace_inline), ("flower", trace_flower)):
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            take_identity(patch)
            files, changes, calls = trace(Path(folder))
        print(f"{name}: {len(files)} files, {changes} changes of file, {calls} calls")
        if "-v" in sys.argv:
            print("  " + "\n  ".join(files))


if __name__ == "__main__":
    main()
