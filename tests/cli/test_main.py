import errno
import os
import platform
import re
import signal
import subprocess
import sys
from importlib import metadata

import click
import pytest
import typer

from fedbb import __version__
from fedbb.cli import main as command_line
from helpers.commands import fedbb
from helpers.rights import denied


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "fedbb", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    first, python, packages = done.stdout.splitlines()
    assert first == f"fedbb {__version__}"
    assert platform.python_version() in python
    assert f"torch {metadata.version('torch')}" in packages


def test_bad_input_ends_with_a_message_and_code_2(tmp_path):
    command = [sys.executable, "-m", "fedbb", "show", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr == f"fedbb: {tmp_path} is not a run folder: it has no recipe.json\n"


@pytest.mark.parametrize(
    ("words", "cores", "begun"),
    [
        (["run", "recipe.toml"], 2, 1),
        (["run", "recipe.toml"], 1, 0),
        (["run", "--help"], 2, 0),
        (["show", "run"], 2, 0),
        ([], 2, 0),
    ],
)
def test_workers_begin_at_once_where_there_will_be_some(words, cores, begun, monkeypatch):
    calls = []
    monkeypatch.setattr(command_line.process_start, "prepare", lambda: calls.append(words))
    monkeypatch.setattr(command_line, "usable_cores", lambda: cores)
    command_line._begin_workers(words)
    assert len(calls) == begun


def test_the_help_lists_every_verb_and_imports_none():
    program = (
        "import sys, fedbb.cli.main as m; sys.argv = ['fedbb', '--help']\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('fedbb.cli.')])\n"
        "print({'torch', 'numpy', 'pydantic'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    *help_lines, imported, heavy = done.stdout.splitlines()
    assert imported == "['fedbb.cli.main']"
    assert heavy == "set()"
    for verb in command_line.VERBS:
        assert any(line.strip("│ ").startswith(f"{verb} ") for line in help_lines)


@pytest.mark.parametrize("verb", command_line.VERBS)
def test_every_listed_verb_has_a_help_of_its_own(verb, monkeypatch):
    done = fedbb(verb, "--help", monkeypatch=monkeypatch)
    assert done.code == 0
    assert f"fedbb {verb}" in done.out


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied"),
        (OSError(errno.ENOSPC, "No space left"), "a file cannot be written: No space left"),
    ],
)
def test_a_file_that_no_verb_foresaw_is_one_message(error, message, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr(command_line, "app", fail)
    done = fedbb("show", "run", monkeypatch=monkeypatch)
    assert (done.code, done.err) == (2, f"fedbb: {message}\n")


def test_an_error_that_is_none_of_files_keeps_its_traceback(monkeypatch):
    def fail():
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    monkeypatch.setattr(command_line, "app", fail)
    with pytest.raises(ConnectionResetError):
        fedbb("show", "run", monkeypatch=monkeypatch)


def test_ctrl_c_before_the_verb_began_ends_with_one_message(monkeypatch):
    def stop(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "_begin_workers", stop)
    done = fedbb("run", "recipe.toml", monkeypatch=monkeypatch)
    assert (done.code, done.err) == (130, "stopped\n")


def test_the_help_of_a_verb_has_no_line_breaks_inside_paragraphs():
    group = typer.main.get_group(command_line.app)
    context = click.Context(group)
    for verb in command_line.VERBS:
        command = group.get_command(context, verb)
        for inner in (command, *getattr(command, "commands", {}).values()):
            paragraphs = inner.help.split("\n\n")
            assert not any("\n" in text for text in paragraphs), inner.name


def test_a_value_out_of_range_names_no_environment_variable(monkeypatch):
    done = fedbb("watch", "runs", "--port", "99999", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "'--port': 99999" in done.err
    assert "env var" not in done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fedbb", "re"], ["report", "refit"]),
        (["fedbb", "run", "--w"], ["--workers"]),
        (["fedbb", "flower", "d"], ["doctor", "dismiss"]),
    ],
)
def test_bash_completes_verbs_and_options(words, expected):
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    environment = {**os.environ, **asked, "_FEDBB_COMPLETE": "complete_bash"}
    program = "import sys; sys.argv = ['fedbb']\nfrom fedbb.cli.main import main; main()"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == expected


@pytest.mark.parametrize("module", ["typer", "fedbb.cli.common", "torch"])
def test_ctrl_c_while_the_command_line_is_loaded_ends_with_one_message(module, tmp_path):
    program = (
        "import importlib.abc, os, signal, sys\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['fedbb', 'predict', 'run', 'digits']\n"
        "from fedbb.__main__ import main; main()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_ctrl_c_in_a_verb_that_keeps_nothing_ends_with_one_message(tmp_path, monkeypatch):
    def interrupt(path):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("fedbb.cli.audit.audit_run", interrupt)
    done = fedbb("audit", tmp_path, monkeypatch=monkeypatch)
    assert (done.code, done.out, done.err) == (130, "", "stopped\n")


CLOSED = [
    ("show", "RUN"),
    ("report", "RUN"),
    ("compare", "RUN", "RUN"),
    ("export", "RUN", "--to", "state-dict"),
    ("predict", "RUN", "digits"),
    ("card", "RUN"),
    ("audit", "RUN"),
    ("verify", "RUN"),
    ("inspect", "RUN"),
    ("inspect", "RUN/labels.csv"),
    ("data", "check", "table", "--path", "RUN/labels.csv"),
    ("data", "check", "npz", "--path", "RUN/data.npz"),
    ("data", "check", "folder", "--path", "RUN"),
    ("run", "RUN"),
    ("run", "RUN/digits.toml"),
    ("run", "RUN", "--resume"),
    ("sweep", "RUN/grid.toml"),
    ("demo", "--out", "RUN"),
    ("flower", "init", "RUN"),
    ("flower", "status", "RUN"),
    ("flower", "certs", "RUN"),
    ("flower", "run", "RUN/digits.toml", "RUN"),
]
"""Verbs on a folder or file; RUN is one below a folder that may not be entered."""


@pytest.mark.parametrize("words", CLOSED, ids=" ".join)
def test_a_folder_above_that_may_not_be_entered_is_named(words, tmp_path, monkeypatch):
    if words[0] == "flower":
        pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    top = tmp_path / "top"
    (top / "run").mkdir(parents=True)
    with denied(top):
        told = [word.replace("RUN", str(top / "run")) for word in words]
        done = fedbb(*told, monkeypatch=monkeypatch)
    assert done.code == 2
    message = " ".join(done.err.split())
    assert re.search(f"Permission denied; give your user the rights? .*to enter {top}$", message)
    assert message.count("fedbb: ") == 1
    assert not list((top / "run").iterdir())
