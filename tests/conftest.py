import os
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from helpers.browser import ARGUMENTS, Visit, find_chromium, require_browser, what_is_missing
from helpers.tally import Tally

# A busy machine must not fail a law; a failing example must come back on the next try.
settings.register_profile(
    "thorough", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=25)
settings.register_profile("mutants", settings.get_profile("thorough"), max_examples=15)
settings.load_profile("quick")

# The tests run in several processes, one thread each (`-n` in pyproject.toml), and so does every
# program that they start: threads that compete for a core wait for each other.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# A shell starts background jobs with Ctrl-C ignored, and they pass it on; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Runs wait for the disk at every checkpoint; the tests' own folders may lie in memory.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 6 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """A SuperLink and three nodes on this machine, with TLS and node keys; leaves no process."""
    from fedbb.flower.admin import processes
    from fedbb.flower.admin.local import LocalFederation

    folder = tmp_path_factory.mktemp("flower") / "federation"
    with LocalFederation(folder, 3, node_config=flower_place) as running:
        yield running
        mark = running.mark
    assert processes.find_marked(mark) == []


def flower_place(number):
    """What Flower's own examples get to know about a node, beside what ours do."""
    return {"partition-id": number, "num-partitions": 3}


@pytest.fixture
def tally(record_property):
    """Counts lost rounds and wrong results for `make test-faults`."""
    return Tally(record_property)


@pytest.fixture(scope="session")
def chromium():
    """Yield Chromium from the PATH, driven by Playwright."""
    require_browser(what_is_missing())
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Return a function that opens a page, and afterwards see that it never complained."""

    @contextmanager
    def opening(path, width=1280, **context):
        scene = chromium.new_context(viewport={"width": width, "height": 900}, **context)
        try:
            seen = Visit(scene.new_page(), path)
            yield seen
            assert seen.complaints == []
        finally:
            scene.close()

    return opening
