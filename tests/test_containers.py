"""The container files: what they promise, and that their commands exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from fedbb.cli.main import app

yaml = pytest.importorskip("yaml", reason="PyYAML comes with Flower")

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
SERVICES = COMPOSE["services"]


def test_a_server_and_three_sites():
    assert set(SERVICES) == {"server", "site-0", "site-1", "site-2"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_runs_without_privileges_and_reports_its_health(name):
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert "privileged" not in service
    users = re.findall(r"^USER (.+)$", DOCKERFILE, re.M)
    assert users[-1] not in ("root", "0")


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "server"])
def test_data_is_mounted_read_only_and_no_site_sees_another(name):
    folder, data = SERVICES[name]["volumes"]
    assert data == f"./data/{name}:/data:ro"
    assert folder == f"./federation/{name}:/site"
    assert "ports" not in SERVICES[name], "no machine connects to a site"


@pytest.mark.parametrize("name", SERVICES)
def test_the_command_of_a_container_is_one_of_fedbb(name):
    words = SERVICES[name]["command"]
    command = typer.main.get_command(app)
    with command.make_context("fedbb", list(words), resilient_parsing=True) as context:
        group = command.get_command(context, words[0])
        assert group is not None
        verb = group.get_command(context, words[1])
        assert verb is not None
        parsed = verb.make_context(words[1], list(words[2:]), resilient_parsing=False)
    assert str(parsed.params["path"]).startswith("/")


def test_every_file_that_the_image_copies_exists():
    for line in re.findall(r"^COPY (?!--from)(.+) \./?\S*$", DOCKERFILE, re.M):
        for name in line.split():
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    ("tools", "code", "said"),
    [
        ({}, 1, "nothing was checked"),
        ({"hadolint": 0}, 0, "dclint: not run, not installed"),
        ({"hadolint": 0, "dclint": 3}, 1, "dclint: FAILED"),
        ({"docker": 0}, 0, "docker compose config: passed"),
        ({"docker": 1, "dclint": 0}, 0, "docker compose config: not run"),
    ],
)
def test_the_check_fails_with_a_tool_and_says_which_were_missing(tmp_path, tools, code, said):
    for name, result in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {result}\n")
        (tmp_path / name).chmod(0o755)
    dirname = shutil.which("dirname")
    assert dirname
    (tmp_path / "dirname").symlink_to(dirname)
    command = ["/bin/sh", str(ROOT / "deploy" / "check.sh")]
    path = {"PATH": str(tmp_path)}
    done = subprocess.run(command, env=path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
