"""The container files: what they promise, and that their commands exist."""

from __future__ import annotations

import re
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
