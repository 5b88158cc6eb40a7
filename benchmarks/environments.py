"""A virtual environment for each framework, made once, with the torch that fedbb uses."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
ENVIRONMENTS = Path(__file__).parents[1] / ".bench-envs"


def make(name: str) -> Path | str:
    """Return the Python of a framework's environment, which is made if it is not there.

    A framework that needs a newer Python names it in python.txt. Where that is missing, or torch
    for it, its older.py makes it run on this Python; if it has none, the reason is returned.
    """
    if not (PEERS / name / "requirements.txt").exists():
        return Path(sys.executable)
    folder = ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    if ready.exists():
        return python
    print(f"making an environment for {name}", file=sys.stderr)
    ENVIRONMENTS.mkdir(exist_ok=True)
    (ENVIRONMENTS / ".gitignore").write_text("*\n", encoding="utf-8")
    base, torch = _find_python(name), "torch==" + version("torch").partition("+")[0]
    reason = None
    if base is None:
        reason = f"needs Python {wanted_python(name)}, which is not on this machine"
    elif not _has_torch(base, folder, torch):
        reason = f"needs {torch} for {Path(base).name}, which cannot be installed here"
    older = PEERS / name / "older.py"
    if reason is not None and not (older.exists() and _has_torch(sys.executable, folder, torch)):
        return reason
    constraint = folder / "constraint.txt"
    constraint.write_text(torch + "\n", encoding="utf-8")
    _install(python, "-c", str(constraint), "-r", str(PEERS / name / "requirements.txt"))
    if (PEERS / name / "alone.txt").exists():
        any_python = ["--ignore-requires-python"] if reason is not None else []
        _install(python, "--no-deps", *any_python, "-r", str(PEERS / name / "alone.txt"))
    if reason is not None:
        subprocess.run([str(python), str(older)], check=True)
    ready.touch()
    return python


def wanted_python(name: str) -> str | None:
    """Return the version of Python that a framework needs, None if this one will do."""
    file = PEERS / name / "python.txt"
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def _has_torch(base: str, folder: Path, torch: str) -> bool:
    """Make a new environment and tell whether torch could be installed in it."""
    subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
    # torch first and alone, so that nothing looks for a newer, larger build.
    try:
        _install(folder / "bin" / "python", torch)
    except subprocess.CalledProcessError:
        return False
    return True


def _find_python(name: str) -> str | None:
    """Return the interpreter that a framework needs, None if this machine lacks it."""
    wanted = wanted_python(name)
    if wanted is None:
        return sys.executable
    return shutil.which(f"python{wanted}t") or shutil.which(f"python{wanted}")


def python_version(python: Path) -> str:
    """Return the version of an interpreter."""
    program = "import platform; print(platform.python_version())"
    answer = subprocess.run(
        [str(python), "-c", program], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def installed(python: Path, package: str) -> str:
    """Return the version of a package in an environment."""
    program = f"from importlib.metadata import version; print(version({package!r}))"
    answer = subprocess.run(
        [str(python), "-c", program], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def _install(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True)
