"""The documentation site builds without a warning and can be read at every width."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedbb.methods import METHODS

ROOT = Path(__file__).parents[1]
PATIENCE = 200_000
"""Milliseconds for a page on a machine with much other work."""

PAGES = (
    "index.html",
    "equations.html",
    "methods.html",
    "methods/fedbb.html",
    "notebooks/loss.html",
    "reference/fedbb.losses.html",
    "commands.html",
    "data.html",
    "results.html",
    "leaderboard.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.mark.slow
def test_every_method_has_a_page_and_every_equation_its_code(site):
    for name in METHODS:
        assert f'<h1 id="{name}">' in (site / "methods" / f"{name}.html").read_text("utf-8")
    text = (site / "equations.html").read_text("utf-8")
    assert text.count("<math") >= 6
    for name in ("effective_number", "case_weights", "dispersion", "balance_weights"):
        assert f"def {name}(" in re.sub(r"<[^>]+>", "", text)


@pytest.mark.slow
def test_the_page_of_commands_has_their_whole_help_texts(site):
    text = (site / "commands.html").read_text("utf-8")
    assert "Run folder; runs/&lt;name&gt; if not given." in text
    assert "A finished cell never runs again" in text
    assert "<code>--quiet</code>, <code>-q</code>" in text


@pytest.mark.slow
def test_the_leaderboard_leads_back_to_the_site(site):
    page = (site / "leaderboard.html").read_text("utf-8")
    targets = re.findall(r'<a href="([a-z]+\.html)">', page)
    assert targets == ["index.html", "results.html"]
    assert all((site / target).exists() for target in targets)


def test_every_block_of_code_is_shown_as_one(site):
    for path in site.rglob("*.html"):
        assert "<p>```" not in path.read_text("utf-8"), path.name
    assert '<span class="filename">digits.toml</span>' in (site / "index.html").read_text("utf-8")


@pytest.mark.slow
def test_the_search_finds_pages_of_a_site_that_was_opened_from_disk(site, chromium):
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto((site / "index.html").as_uri())
    words = page.locator("input[name=query]")
    words.click()
    words.press_sequentially("dispersion")
    page.wait_for_selector(".md-search-result__link", state="attached")
    found = page.locator(".md-search-result__link").first.get_attribute("href")
    page.close()
    assert found.startswith(site.as_uri())


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_has_no_console_error_and_nothing_is_cut(site, chromium, name, width):
    page = chromium.new_page(viewport={"width": width, "height": 900})
    complaints = []
    page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.goto((site / name).as_uri(), timeout=PATIENCE)
    page.wait_for_timeout(300)
    wider = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    page.close()
    assert complaints == []
    assert wider == 0
