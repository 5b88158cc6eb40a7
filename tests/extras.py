"""Check that every extra works when it is installed alone: `make test-extras`.

Builds the wheel, installs it in a new environment without any extra, and then, for each extra
named on the command line, in a new environment that sees only the packages of the first one and
those of that extra. In each environment one recipe runs that uses the extra.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
RECIPE = {
    "engine": "inline",
    "data": {
        "name": "digits",
        "train_images": 200,
        "partition": {"kind": "even", "clients": 3},
    },
    "method": {"name": "fedbb"},
    "rounds": {"number": 1},
}
TRACKERS = ("tensorboard", "mlflow", "wandb")
NOT_PINNED = ("mlflow", "nvflare", "wandb")
"""Extras that the development environment lacks: constraints.txt does not hold their versions, and
mlflow allows only older ones of some packages that it does hold."""
EXTRAS = (
    "none",
    "private",
    "he",
    "flower",
    "nvflare",
    "onnx",
    "pandas",
    "arrow",
    "dicom",
    "tune",
    *TRACKERS,
)
PRIVACY = {"private": "masked", "he": "bfv"}
SECONDS = 900


def main() -> None:
    """Check the extras named on the command line, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"of {', '.join(EXTRAS)}")
    wanted = parser.parse_args().extras or list(EXTRAS)
    unknown = sorted(set(wanted) - set(EXTRAS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(EXTRAS)}")
    failed = []
    with TemporaryDirectory(prefix="fedbb-extras-") as name:
        place = Path(name)
        wheel = build_wheel(place)
        base = install(place / "none", [str(wheel)], None)
        for extra in wanted:
            began = time.monotonic()
            try:
                python = (
                    base if extra == "none" else install_extra(place / extra, wheel, extra, base)
                )
                check(extra, python, place / extra)
            except (AssertionError, SystemExit, subprocess.TimeoutExpired) as error:
                failed.append(extra)
                print(f"{extra}: failed: {error}", flush=True)
            else:
                print(f"{extra}: ok ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


def build_wheel(place: Path) -> Path:
    """Return the package's wheel, built from this tree."""
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(place), str(ROOT))
    (wheel,) = place.glob("fedbb-*.whl")
    return wheel


def install_extra(folder: Path, wheel: Path, extra: str, base: Path) -> Path:
    """Return the Python of an environment with one extra on top of those without any."""
    pinned = CONSTRAINTS
    if extra in NOT_PINNED:
        pinned = folder.with_suffix(".txt")
        lines = CONSTRAINTS.read_text("utf-8").splitlines()
        pinned.write_text("\n".join(line for line in lines if line.startswith("torch==")), "utf-8")
    return install(folder, [f"fedbb[{extra}] @ {wheel.as_uri()}"], base, pinned)


def install(
    folder: Path, packages: Sequence[str], base: Path | None, pinned: Path = CONSTRAINTS
) -> Path:
    """Return the Python of a new environment with these packages, and those of `base` below."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    if base is None:
        # The pinned version first and alone keeps pip from looking for a larger build.
        pip(python, "install", "-c", str(pinned), "torch")
    else:
        below = site_packages(base)
        (site_packages(python) / "base.pth").write_text(f"{below}\n", "utf-8")
    pip(python, "install", "-c", str(pinned), *packages)
    return python


def site_packages(python: Path) -> Path:
    (found,) = (python.parents[1] / "lib").glob("python3*/site-packages")
    return found


def check(extra: str, python: Path, place: Path) -> None:
    """Run one recipe that uses the extra, from an empty folder."""
    work = place / "work"
    work.mkdir(parents=True)
    recipe = work / "recipe.json"
    recipe.write_text(json.dumps(RECIPE), "utf-8")
    if extra == "flower":
        words = ["flower", "up", str(work / "trial"), "--sites", "3", "--run", str(recipe)]
        fedbb(python, work, *words, "--quiet")
        assert list(work.rglob("summary.json")), "the run on Flower left no summary"
        return
    if extra == "nvflare":
        job = ROOT / "examples" / "nvflare" / "job.py"
        done = run([python, job, "--rounds", "1", "--folder", work / "job"], work)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert list(work.rglob("client_weights.csv")), "the job in the simulator left no weights"
        return
    command = ["run", str(recipe), "--out", str(work / "run"), "--quiet"]
    if extra in TRACKERS:
        command += ["--track", f"{extra}={work / 'tracking'}"]
    if extra in PRIVACY:
        command += ["--set", f"privacy={PRIVACY[extra]}"]
    if extra == "none":
        refused = fedbb(python, work, *command, "--set", "privacy=masked", code=2)
        assert 'pip install "fedbb[private]"' in refused.stderr, refused.stderr
    done = fedbb(python, work, *command)
    assert "warning" not in done.stderr, done.stderr
    assert (work / "run" / "summary.json").exists()
    if extra == "pandas":
        execute(python, work, "import fedbb; assert len(fedbb.read_run('run').to_frame()) == 1")
    if extra in ("arrow", "dicom"):
        check_data(extra, python, work)
    if extra == "tune":
        words = ["--set", "data.validation=0.2", "--search", "local.lr=0.01,0.1", "--out", "tuning"]
        fedbb(python, work, "tune", str(recipe), *words)
        assert list(work.glob("tuning/*/recipe.toml"))
    if extra == "onnx":
        fedbb(python, work, "export", str(work / "run"), "--to", "onnx", "--out", "model.onnx")
    if extra in TRACKERS:
        assert any(path.is_file() for path in (work / "tracking").rglob("*"))


ARROW = """
import numpy, pyarrow, pyarrow.parquet
rows = {"x": numpy.arange(30.0), "site": ["a", "b", "c"] * 10, "y": [0, 1] * 15}
pyarrow.parquet.write_table(pyarrow.table(rows), "data.parquet")
"""

HUGGING_FACE = """
import datasets, fedbb, numpy
features = datasets.Features({"x": datasets.List(datasets.Value("float32")),
                              "label": datasets.ClassLabel(names=["no", "yes"])})
rows = {"x": numpy.arange(60.0).reshape(30, 2).tolist(), "label": [0, 1] * 15}
saved = datasets.Dataset.from_dict(rows, features=features)
saved.save_to_disk("saved")
live = fedbb.Dataset.from_hf(saved, input_key="x", test_share=0.2)
read = fedbb.data.load_dataset("hf", path="saved", options={"input_key": "x"})
assert live.classes == read.classes == ("no", "yes")
assert (live.train.inputs == read.train.inputs).all()
"""

DICOM = """
import pathlib, shutil
from pydicom.data import get_testdata_file
for number in range(4):
    shutil.copy(get_testdata_file("CT_small.dcm", download=False), f"{number}.dcm")
rows = "".join(f"{number}.dcm,{number % 2}\\n" for number in range(4))
pathlib.Path("labels.csv").write_text("image,y\\n" + rows)
"""


def check_data(extra: str, python: Path, work: Path) -> None:
    """Read files that need an extra: a parquet table and a saved data set, or DICOM files."""
    execute(python, work, ARROW if extra == "arrow" else DICOM)
    name, path = ("features", "data.parquet") if extra == "arrow" else ("dicom", "labels.csv")
    more = ["--set", 'columns=["site"]'] if extra == "arrow" else ["--set", 'group="image"']
    words = ["data", "check", name, "--path", path, "--set", "class_column=y", *more]
    fedbb(python, work, *words)
    if extra == "arrow":
        # The library is for this check only: fedbb reads with pyarrow what it saved.
        pip(python, "install", "datasets")
        execute(python, work, HUGGING_FACE)


def execute(python: Path, folder: Path, script: str) -> None:
    done = run([python, "-c", script], folder)
    assert done.returncode == 0, done.stderr


def fedbb(
    python: Path, folder: Path, *words: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Call the installed command; fail if it ends with another code."""
    done = run([python, "-m", "fedbb", *words], folder)
    if done.returncode != code:
        sys.exit(f"fedbb {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done


def pip(python: str | Path, *words: str) -> None:
    done = run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], ROOT)
    if done.returncode:
        sys.exit(f"pip {' '.join(words)} failed:\n{done.stderr}")


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    # Nothing of the environment that runs this check may be seen by those it makes.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


if __name__ == "__main__":
    main()
