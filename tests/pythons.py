"""Run the fast tests on other versions of Python: `make test-pythons`.

For each version that is installed, makes an environment, installs the package and runs the tests.
What is missing is skipped, with the reason. On Linux the registry's builds of torch bring several
gigabytes of CUDA; unless ANY_TORCH=1 allows them, a version for which pip finds no CPU build is
checked without torch: every file is compiled with warnings as errors, every pinned version has a
wheel, the modules that need no torch are imported, and the command line starts.

`make test-pythons PYTHONS=/usr/bin/python3` runs the tests on an interpreter that already has a
torch, such as the CPU build of a Linux distribution: the new environment sees its packages, and
torch keeps its version.
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

OWN_TORCH = """
import platform, site, torch
print(platform.python_version(), torch.__version__, *site.getsitepackages(), sep="\\n")
"""
"""Prints the versions of an interpreter and its torch, and the folders of its packages."""


def main() -> None:
    """Check the versions and interpreters named on the command line, 3.12 and 3.13 by default."""
    failed = []
    for name in sys.argv[1:] or VERSIONS:
        brings_torch = os.sep in name
        python = name if brings_torch else find_python(name)
        if python is None:
            print(f"Python {name}: skipped, it is not installed")
            continue
        try:
            done = check_with_its_torch(python) if brings_torch else check(name, python)
            print(f"Python {name}: {done}")
        except (subprocess.CalledProcessError, OSError) as error:
            failed.append(name)
            words = getattr(error, "cmd", None) or [str(error)]
            print(f"Python {name}: FAILED: {' '.join(map(str, words))}")
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


def check_with_its_torch(python: str) -> str:
    """Run the tests on an interpreter that has a torch, and return what was done."""
    asked = (python, "-c", OWN_TORCH)
    answer = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
    version, torch, *folders = answer.splitlines()
    folder = ENVIRONMENTS / f"{version}-torch-{torch}"
    own = lend_packages(python, folder, folders)
    constraints = folder / "constraints.txt"
    constraints.write_text(pins_without_torch() + f"torch=={torch}\n", "utf-8")
    pip = (own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "-c", str(constraints), "-e", ".[dev]")
    run(own, "-m", "pytest")
    return f"the tests passed on {version} with its torch {torch}"


def lend_packages(python: str, folder: Path, folders: list[str]) -> str:
    """Make an environment that sees an interpreter's packages, and return its own interpreter.

    `venv --system-site-packages` would show those of the system, and not those of an interpreter
    that belongs to an environment itself.
    """
    run(python, "-m", "venv", str(folder))
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(folders), "utf-8")
    return str(folder / "bin" / "python")


def check_without_torch(own: str, pip: tuple[str, ...]) -> None:
    """Check what can be checked without torch, and fail with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    run(own, "-W", "error", "-m", "compileall", "-q", "-f", "src", "tests", "studies")
    with NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pins_without_torch())
        file.flush()
        words = ("--dry-run", "--no-deps", "--ignore-installed", "--only-binary", ":all:")
        run(*pip, *words, "-r", file.name)
    needed = [name for name in project["dependencies"] if not name.startswith("torch")]
    run(*pip, "-c", "constraints.txt", *needed)
    run(own, "-W", "error", "-c", IMPORTS)
    run(own, "-W", "error", "-c", "from fedbb.cli.main import main; main()", "--help")


def pins_without_torch() -> str:
    """Return the lines of constraints.txt without the one of torch."""
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines(keepends=True)
    return "".join(pin for pin in pins if not pin.startswith("torch=="))


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
