"""What a release consists of: one version, a changelog entry, a wheel with all that it needs."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import pythons
from fedbb import __version__

ROOT = Path(__file__).parents[1]


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_version_is_the_same_wherever_it_stands():
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert f"version: {__version__}" in text_of("CITATION.cff")
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project
    newest = re.search(r"^## (\S+)", text_of("CHANGELOG.md"), re.M)[1]
    assert newest in (__version__, "Unreleased")
    assert f"## {__version__} (" in text_of("CHANGELOG.md")


def test_the_versions_of_python_are_the_same_wherever_they_stand():
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    named = [
        line.rpartition(" ")[2] for line in project["classifiers"] if ":: Python :: 3." in line
    ]
    oldest, *newer = named
    assert project["requires-python"] == f">={oldest}"
    assert list(pythons.VERSIONS) == newer
    listed = re.search(r"^\s+python: (\[.*\])", text_of(".github/workflows/nightly.yml"), re.M)
    assert json.loads(listed[1]) == named
    images = re.findall(r"python:(3\.\d+)-", text_of(".github/workflows/checks.yml"))
    assert images == [oldest]


def test_links_of_the_description_lead_to_the_files_of_the_release():
    pytest.importorskip("hatchling")
    from hatch_build import tag_of, with_absolute_links

    text = "[a](docs/a.md#b), [b](https://b.example), [c](#c), ![d [e]](docs/d.png)"
    done = with_absolute_links(text, "https://git.example/fedbb", "v1.0.0")
    assert done == (
        "[a](https://git.example/fedbb/blob/v1.0.0/docs/a.md#b), [b](https://b.example), [c](#c), "
        "![d [e]](https://git.example/fedbb/raw/v1.0.0/docs/d.png)"
    )
    assert tag_of(str(ROOT)) == f"v{__version__}"
    assert with_absolute_links(text, "", "v1.0.0") == "a, [b](https://b.example), [c](#c), "


def test_scripts_and_styles_are_formatted_by_the_same_version_everywhere():
    versions = re.findall(
        r"prettier@([\d.]+)",
        text_of(".pre-commit-config.yaml") + text_of(".github/workflows/checks.yml"),
    )
    assert len(versions) == 2
    assert len(set(versions)) == 1


@pytest.mark.skipif(shutil.which("prettier") is None, reason="prettier is not on the PATH")
def test_scripts_and_styles_are_formatted():
    files = [*ROOT.glob("src/**/*.js"), *ROOT.glob("src/**/*.css"), *ROOT.glob("studies/*.js")]
    files += ROOT.glob("docs/site/*.js")
    done = subprocess.run(["prettier", "--check", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["checks", "nightly"])
def test_every_target_and_script_that_a_workflow_calls_exists(name):
    text = text_of(f".github/workflows/{name}.yml")
    listed = re.search(r"target:\n((?:\s+- .*\n)+)", text)
    called = re.findall(r"^\s+- (\S+)", listed[1], re.M) if listed else []
    called += re.findall(r"make ([\w.][\w./-]*)", text)
    rules = set(re.findall(r"^([\w-]+):", text_of("Makefile"), re.M)) | {".venv/.tools"}
    assert set(called) <= rules
    scripts = re.findall(r"run: (\.ci/\S+)", text)
    assert called or scripts
    assert all((ROOT / script).stat().st_mode & 0o100 for script in scripts)


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
