"""Known holes in what we depend on: no version that has one may be installed.

`pip-audit -r constraints.txt` asks the live databases and is part of the nightly checks. This
table needs no network. It lists the advisories that concern what fedbb does with a package.
"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]

SOUND = {
    # torch.load(weights_only=True), which reads model.weights, could run code:
    # CVE-2025-32434 before 2.6.0, CVE-2026-24747 before 2.10.0.
    "torch": "2.10.0",
    # Buffer overflows in the decoders of JPEG and TIFF (GHSA-5x8w-8jj5-q52h, GHSA-462x-pgg6-55fp)
    # and stale storage of multi-frame images (CVE-2026-96639), all before 13.0.0.
    "pillow": "13.0.0",
    # Symbolic links in place of a lock: CVE-2025-68146 before 3.20.1, CVE-2026-22701 before 3.20.3.
    "filelock": "3.20.3",
    # Weak public keys of binary curves: CVE-2026-26007 before 46.0.5. Names in certificates with
    # wildcards: CVE-2026-34073 before 46.0.6.
    "cryptography": "46.0.6",
}
"""The first version without a known hole, by package."""


def requirements():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return {found.name.lower(): found for found in map(Requirement, lines)}


def pinned():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    found = (re.fullmatch(r"([\w.-]+)==(\S+)", line) for line in lines)
    return {match[1].lower(): Version(match[2]) for match in found if match}


@pytest.mark.parametrize("name", SOUND)
def test_no_version_with_a_known_hole_can_be_installed(name):
    bounds = [each for each in requirements()[name].specifier if each.operator == ">="]
    assert [Version(bound.version) for bound in bounds] >= [Version(SOUND[name])]


@pytest.mark.parametrize("name", SOUND)
def test_the_version_that_tests_run_with_has_no_known_hole(name):
    assert pinned()[name] >= Version(SOUND[name])


def test_the_linter_looks_for_insecure_calls():
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    waived = [rule for rule in lint["ignore"] if rule.startswith("S")]
    assert waived == ["S101", "S603"]
