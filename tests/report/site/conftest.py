"""A real browser for the tests that need one; without Chromium they are skipped."""

import shutil
from contextlib import contextmanager

import pytest

from fedbb.report.groups import gather
from fedbb.report.site.run_report import write_report
from helpers.page_visit import Visit
from helpers.run_builder import Sketch, build_all

SKETCHES = [
    *(Sketch(method, seed) for method in ("fedavg", "fedavg-scaled", "fedbb") for seed in range(3)),
    *(Sketch(method, 0, data="mosaic", task="multilabel") for method in ("fedavg", "fedbb")),
]


@pytest.fixture(scope="session")
def chromium():
    """Yield Chromium from the PATH, driven by Playwright."""
    driver = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on the PATH")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
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


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Return runs of three methods on two data sets, with one unfinished and one damaged."""
    root = tmp_path_factory.mktemp("runs")
    paths = build_all(root, [*SKETCHES, Sketch("fedbb", 7, finished=False), Sketch("fedbb", 8)])
    (paths[-1] / "rounds.jsonl").write_text("{\n")
    return root


@pytest.fixture(scope="session")
def report(runs, tmp_path_factory):
    """Return the path of a report on these runs."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(gather([runs]), path)
    return path
