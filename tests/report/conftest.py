"""A real browser for the tests of pages."""

from contextlib import contextmanager

import pytest

from helpers.browser import ARGUMENTS, Visit, find_chromium, require_browser, what_is_missing


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
