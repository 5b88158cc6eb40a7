"""The final models of every method, task and engine have the bits that were frozen here.

`digests.json` was written before the package was reorganized, `digests-portable.json` by commit
0c595a9, which gave the former on its processor. A change of either means that old runs can no
longer be reproduced or resumed: it needs a reason, and a line in the changelog.

FedAlign multiplies batches of matrices. MKL chooses their kernels by the processor whatever its
variables say, so that FedAlign has two portable digests: `digests-batched.json` holds those that
the same commit gave on an AMD EPYC with AVX-512.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.kernels import AVX2, PORTABLE, environment, is_amd

TESTS = Path(__file__).parent
SECONDS = 900  # a busy machine must not fail it


def read_digests(name: str) -> dict[str, dict[str, str]]:
    return json.loads((TESTS / name).read_text("utf-8"))


FROZEN = read_digests("digests-portable.json")
BATCHED = {
    engine: {**table, **read_digests("digests-batched.json").get(engine, {})}
    for engine, table in FROZEN.items()
}
FIRST = read_digests("digests.json")


def final_models(kernels: Mapping[str, str], *engines: str) -> dict[str, dict[str, str]]:
    """Return for each engine the SHA-256 of each case's final model, from a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", "helpers.digest_runs", *engines],
        capture_output=True,
        text=True,
        env=environment(kernels),
        timeout=SECONDS,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


# Few processes, since each of them imports torch and Flower.
ENGINES = [
    ("inline", "central", "masked"),
    pytest.param(("flower", "pool"), marks=pytest.mark.slow),
]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("engines", ENGINES)
def test_every_engine_ends_with_the_frozen_models(engines: tuple[str, ...]) -> None:
    frozen = [{name: of.get(name, of["federated"]) for name in engines} for of in (FROZEN, BATCHED)]
    assert final_models(PORTABLE, *engines) in frozen


@pytest.mark.timeout(SECONDS)
@pytest.mark.skipif(not is_amd(), reason="the first digests are those of AMD's processors")
def test_the_first_digests_hold_on_their_processor() -> None:
    assert final_models(AVX2, "inline") == {"inline": FIRST["federated"]}
    others = final_models(AVX2, "central", "masked")
    assert others == {engine: FIRST[engine] for engine in others}


def test_both_tables_freeze_the_same_cases() -> None:
    assert {engine: list(cases) for engine, cases in FROZEN.items()} == {
        engine: list(cases) for engine, cases in FIRST.items()
    }
