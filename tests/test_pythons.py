"""The helper of `make test-pythons`."""

import subprocess
import sys

import pytest

import pythons


def test_an_interpreter_with_a_torch_keeps_it_and_takes_every_other_pin():
    pins = pythons.pins_without_torch().splitlines()
    everything = (pythons.ROOT / "constraints.txt").read_text("utf-8").splitlines()
    (missing,) = set(everything) - set(pins)
    assert missing.startswith("torch==")


def test_the_version_of_torch_and_the_folders_of_its_packages_are_asked_for():
    import torch

    done = subprocess.run(
        [sys.executable, "-c", pythons.OWN_TORCH], capture_output=True, text=True, check=True
    )
    _, version, *folders = done.stdout.splitlines()
    assert version == torch.__version__
    assert any(torch.__file__.startswith(folder) for folder in folders)


def test_what_is_missing_is_skipped_and_what_cannot_run_fails(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pythons.py", "3.0", "/nowhere/python3"])
    with pytest.raises(SystemExit) as ended:
        pythons.main()
    assert ended.value.code == 1
    skipped, failed = capsys.readouterr().out.splitlines()
    assert skipped == "Python 3.0: skipped, it is not installed"
    assert failed.startswith("Python /nowhere/python3: FAILED: ")


@pytest.mark.slow
def test_an_environment_sees_the_packages_that_an_interpreter_lends_it(tmp_path):
    lent = tmp_path / "lent"
    lent.mkdir()
    (lent / "only_there.py").write_text("found = 1\n")
    own = pythons.lend_packages(sys.executable, tmp_path / "environment", [str(lent)])
    subprocess.run([own, "-c", "import only_there"], check=True)
