"""Run the fast tests on other versions of Python: `make test-pythons`.

For each version that is installed, makes an environment, installs the package and runs the tests.
What is missing is skipped, with the reason. On Linux the registry's builds of torch bring several
gigabytes of CUDA; unless ANY_TORCH=1 allows them, a version for which pip finds no CPU build is
checked without torch: every file is compiled with warnings as errors, every pinned version has a
wheel, the modules that need no torch are imported, and the command line starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import NamedTemporaryFile

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".pythons"
VERSIONS = ("3.12", "3.13")
IMPORTS = """
import importlib, pkgutil, sys
import fedbb
imported = lack_torch = 0
for module in pkgutil.walk_packages(fedbb.__path__, "fedbb.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
        imported += 1
    except ModuleNotFoundError as error:
        # Extras are not installed here either; what is the package's own must be found.
        if (error.name or "").startswith("fedbb"):
            raise
        lack_torch += error.name == "torch"
print(imported, "modules are imported,", lack_torch, "need torch", file=sys.stderr)
sys.exit(imported < 40)
"""
"""Imports what can be imported without torch, and fails with the first error of another kind."""


def main() -> None:
    """Check the versions named on the command line, 3.12 and 3.13 by default."""
    failed = []
    for version in sys.argv[1:] or VERSIONS:
        python = find_python(version)
        if python is None:
            print(f"Python {version}: skipped, it is not installed")
            continue
        try:
            print(f"Python {version}: {check(version, python)}")
        except subprocess.CalledProcessError as error:
            failed.append(version)
            print(f"Python {version}: FAILED: {' '.join(map(str, error.cmd))}")
    sys.exit(1 if failed else 0)


def find_python(version: str) -> str | None:
    """Return an interpreter of a version, from the PATH or from pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = sorted(versions.glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, found)):
        # pyenv puts commands on the PATH for versions that are not switched on.
        if candidate and not subprocess.run([candidate, "-V"], capture_output=True).returncode:
            return candidate
    return None


def check(version: str, python: str) -> str:
    """Check one version and return what was done."""
    folder = ENVIRONMENTS / version
    run(python, "-m", "venv", str(folder))
    own = str(folder / "bin" / "python")
    pip = (own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if not has_small_torch(own):
        check_without_torch(own, pip)
        return (
            "compiled, every pinned version has a wheel, what needs no torch is imported, and the "
            "command line starts; tests skipped: no CPU build of torch"
        )
    run(*pip, "-c", "constraints.txt", "torch")
    run(*pip, "-c", "constraints.txt", "-e", ".[dev]")
    run(own, "-m", "pytest")
    return "the tests passed"


def check_without_torch(own: str, pip: tuple[str, ...]) -> None:
    """Check what can be checked without torch, and fail with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    run(own, "-W", "error", "-m", "compileall", "-q", "-f", "src", "tests", "studies")
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    with NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pin for pin in pins if not pin.startswith("torch==")))
        file.flush()
        words = ("--dry-run", "--no-deps", "--ignore-installed", "--only-binary", ":all:")
        run(*pip, *words, "-r", file.name)
    needed = [name for name in project["dependencies"] if not name.startswith("torch")]
    run(*pip, "-c", "constraints.txt", *needed)
    run(own, "-W", "error", "-c", IMPORTS)
    run(own, "-W", "error", "-c", "from fedbb.cli.main import main; main()", "--help")


def has_small_torch(python: str) -> bool:
    """Return whether pip would install a torch without CUDA."""
    if os.environ.get("ANY_TORCH") == "1":
        return True
    words = (
        "install",
        "--dry-run",
        "--no-deps",
        "--quiet",
        "--report",
        "-",
        "-c",
        "constraints.txt",
    )
    done = subprocess.run(
        [python, "-m", "pip", *words, "torch"], cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode == 0 and re.search(r"torch-[\d.]+(\+|%2B)cpu", done.stdout) is not None


def run(*words: str) -> None:
    """Run a program on the source tree and fail with it."""
    paths = {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run(words, cwd=ROOT, check=True, env={**os.environ, **paths}, stdout=sys.stderr)


if __name__ == "__main__":
    main()
