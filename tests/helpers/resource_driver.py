"""Run a recipe with few file descriptors; print what the process holds after every round.

test_resources.py starts this by itself: what other tests opened must not count.
"""

import json
import resource
import sys
from pathlib import Path

import torch

from fedbb.recipes.reader import read_recipe
from fedbb.runs.runner import run


def held():
    """Return open files, threads and resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (
        sum(1 for _ in Path("/proc/self/fd").iterdir()),
        sum(1 for _ in Path("/proc/self/task").iterdir()),
        pages * resource.getpagesize(),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    for record in run(read_recipe(sys.argv[1]), Path(sys.argv[2])):
        print(json.dumps([record["round"], *held()]))
