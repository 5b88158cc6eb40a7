"""In a process of its own, since the settings stay."""

import platform
import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from fedbb.training.threads import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(8 << 20)  # 64 MiB, more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults(how):
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=60
    )
    return int(answer.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_was_freed_is_used_again_without_page_faults():
    pages = 10 * (64 << 20) // resource.getpagesize()
    assert faults("leave") > pages / 1024  # huge pages fault more rarely
    assert faults("keep") < faults("leave") / 20
