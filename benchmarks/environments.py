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
    for it, the reason is returned.
    """
    if not (PEERS / name / "requirements.txt").exists():
        return Path(sys.executable)
    folder = ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    if ready.exists():
        return python
    base = _find_python(name)
    if base is None:
        wanted = (PEERS / name / "python.txt").read_text(encoding="utf-8").strip()
        return f"needs Python {wanted}, which is not on this machine"
    print(f"making an environment for {name}", file=sys.stderr)
    ENVIRONMENTS.mkdir(exist_ok=True)
    (ENVIRONMENTS / ".gitignore").write_text("*\n", encoding="utf-8")
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    torch = "torch==" + version("torch").partition("+")[0]
    constraint = folder / "constraint.txt"
    constraint.write_text(torch + "\n", encoding="utf-8")
    # torch first and alone, so that nothing looks for a newer, larger build.
    try:
        _install(python, torch)
    except subprocess.CalledProcessError:
        return f"needs {torch} for {Path(base).name}, which cannot be installed here"
    _install(python, "-c", str(constraint), "-r", str(PEERS / name / "requirements.txt"))
    if (PEERS / name / "alone.txt").exists():
        _install(python, "--no-deps", "-r", str(PEERS / name / "alone.txt"))
    ready.touch()
    return python


def _find_python(name: str) -> str | None:
    """Return the interpreter that a framework needs, None if this machine lacks it."""
    file = PEERS / name / "python.txt"
    if not file.exists():
        return sys.executable
    version = file.read_text(encoding="utf-8").strip()
    return shutil.which(f"python{version}t") or shutil.which(f"python{version}")


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
