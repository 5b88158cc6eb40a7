"""The final models of every method, task and engine have the bits that were frozen here.

`digests.json` was written before the package was reorganized. A change of it means that old runs
can no longer be reproduced or resumed: it needs a reason, and a line in the changelog.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FROZEN = json.loads((TESTS / "digests.json").read_text("utf-8"))
# One instruction set, so that newer processors give the bits of older ones.
INSTRUCTIONS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
SECONDS = 900  # a busy machine must not fail it


def final_models(*engines: str) -> dict[str, dict[str, str]]:
    """Return for each engine the SHA-256 of each case's final model, from a process of its own."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    answer = subprocess.run(
        [sys.executable, "-m", "helpers.digest_runs", *engines],
        capture_output=True,
        text=True,
        env={**os.environ, **INSTRUCTIONS, "PYTHONPATH": path},
        timeout=SECONDS,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


# Few processes, since each of them imports torch and Flower.
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("engines", [("inline", "flower"), ("pool",), ("central", "masked")])
def test_every_engine_ends_with_the_frozen_models(engines: tuple[str, ...]) -> None:
    frozen = {engine: FROZEN.get(engine, FROZEN["federated"]) for engine in engines}
    assert final_models(*engines) == frozen
