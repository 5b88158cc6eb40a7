"""A run on a sparse file of images, in a process that may hold little memory; prints its peak."""

import resource
import sys
from pathlib import Path

import numpy as np
import torch

import fedbb

SHAPE = (3, 128, 128)
ALLOWED = 384 * 2**20
"""Bytes that the process may take beyond what it holds after its imports."""


def held(kind: str) -> int:
    """Bytes of a kind of memory of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[kind].split()[0]) * 1024


def main() -> None:
    file, megabytes = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    number = megabytes * 2**20 // int(np.prod(SHAPE))
    # Holes of the file take no space on disk and are read as zeros.
    images = np.lib.format.open_memmap(file, "w+", np.uint8, (number, *SHAPE))
    del images
    images = np.load(file, mmap_mode="r")
    labels = np.arange(number) % 2
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held("VmData") + ALLOWED, hard))
    before = held("VmRSS")
    data = fedbb.Dataset.from_arrays(images, labels, test_share=0.1)
    clients = fedbb.partition.iid(data, clients=2)
    local = fedbb.LocalConfig(epochs=1, batch_size=64)
    fedbb.simulate(data, clients, model="linear", local=local, rounds=1, bootstrap=0, workers=0)
    print(before // 2**20, held("VmHWM") // 2**20)


if __name__ == "__main__":
    main()
