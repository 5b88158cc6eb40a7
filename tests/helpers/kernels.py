"""Which kernels torch computes with in other processes, as variables of their environment.

The bits of a model depend on the kernels, and these on the processor. Digests are frozen twice:
with AVX2, as an AMD EPYC gave them before the package was reorganized, and with kernels that every
x86-64 processor has, from the commit that gave the former on that processor.
"""

import os
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "FEDBB_TEST_KERNELS": "portable",
}
"""No vectors in torch's own kernels, and MKL's one way for all processors; without oneDNN."""


def is_amd() -> bool:
    """Return whether this is a processor of the maker whose AVX2 digests are frozen."""
    about = Path("/proc/cpuinfo")
    return about.exists() and "AuthenticAMD" in about.read_text("utf-8")


def environment(kernels: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that computes with these kernels."""
    paths = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    if kernels is PORTABLE:
        paths.insert(0, str(TESTS / "helpers" / "portable"))
    return {**os.environ, **kernels, "PYTHONPATH": os.pathsep.join(paths)}
