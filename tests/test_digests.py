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


def final_models(engine: str) -> dict[str, str]:
    """Return the SHA-256 of each case's final model, computed in a process of its own."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    answer = subprocess.run(
        [sys.executable, "-m", "helpers.digest_runs", engine],
        capture_output=True,
        text=True,
        env={**os.environ, **INSTRUCTIONS, "PYTHONPATH": path},
        timeout=600,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.parametrize("engine", ["inline", "pool", "flower"])
def test_every_engine_ends_with_the_frozen_models(engine: str) -> None:
    assert final_models(engine) == FROZEN["federated"]


@pytest.mark.parametrize("kind", ["central", "masked"])
def test_central_and_private_runs_end_with_the_frozen_models(kind: str) -> None:
    assert final_models(kind) == FROZEN[kind]
