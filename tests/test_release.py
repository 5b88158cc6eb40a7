"""What a release consists of: one version, a changelog entry, a wheel with all that it needs."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from fedbb import __version__

ROOT = Path(__file__).parents[1]


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_version_is_the_same_wherever_it_stands():
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert f"version: {__version__}" in text_of("CITATION.cff")
    assert tomllib.loads(text_of("pyproject.toml"))["project"]["dynamic"] == ["version"]
    newest = re.search(r"^## (\S+)", text_of("CHANGELOG.md"), re.M)[1]
    assert newest in (__version__, "Unreleased")
    assert f"## {__version__} (" in text_of("CHANGELOG.md")


def test_every_file_of_the_package_is_one_that_a_wheel_takes():
    endings = {path.suffix for path in (ROOT / "src" / "fedbb").rglob("*") if path.is_file()}
    assert endings - {".pyc"} <= {".py", ".toml", ".json", ".css", ".js", ".html", ".md", ".typed"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive and the wheel."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    words = ["--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "build", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package_and_no_other(built):
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    own = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "fedbb").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert names == own


@pytest.mark.slow
def test_the_source_archive_holds_no_data_runs_or_environments(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = [name.partition("/")[2] for name in files.getnames()]
    assert "README.md" in names
    tops = {name.partition("/")[0] for name in names}
    assert not tops & {".venv", "data", "runs", "sweeps", "demo", "site", "tuning", ".pythons"}


@pytest.mark.slow
def test_the_registry_would_take_and_show_it(built):
    pytest.importorskip("twine")
    files = map(str, built.iterdir())
    words = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
