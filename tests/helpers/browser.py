"""A real Chromium: pages opened, read and used as a reader would, and scripts computed in it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Mapping

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")

# Elements wider inside than outside, or beyond the edge of the window: their text would be cut.
CUT = """() => {
  const room = document.documentElement.clientWidth;
  return [...document.querySelectorAll("body *")].filter((node) => {
    const box = node.getBoundingClientRect();
    if (box.width === 0 || node.closest("svg, .skip, select, #tip")) return false;
    const inline = getComputedStyle(node).display === "inline";
    const inside = inline ? 0 : node.scrollWidth - node.clientWidth;
    return box.right > room + 1 || box.left < -1 || inside > 1;
  }).map((node) => `${node.tagName}.${node.className} ${node.textContent.slice(0, 40)}`);
}"""
CUT_IN_FIGURES = """() => [...document.querySelectorAll(".plot svg text")].filter((text) => {
  const [inner, outer] = [text, text.closest("svg")].map((node) => node.getBoundingClientRect());
  return inner.left < outer.left - 1 || inner.right > outer.right + 1
    || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
}).map((text) => text.textContent)"""
OVERLAPS = """() => [...document.querySelectorAll(".plot svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")]
    .map((text) => [text, text.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
  return texts.flatMap(([one, a], at) => texts.slice(at + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
    .map(([other]) => `${one.textContent} / ${other.textContent}`));
})"""
ROWS = """(id) => [...document.querySelectorAll(`#${id} tbody tr`)].filter((row) => !row.hidden)
  .map((row) => [...row.children].map((cell) => cell.textContent.replaceAll("\\u00a0", " ")))"""
HEAD = "(id) => [...document.querySelectorAll(`#${id} thead button`)].map((one) => one.textContent)"

COLOR = """(name) => {
  const node = document.createElement("i");
  node.style.color = `var(--${name})`;
  document.body.append(node);
  const found = getComputedStyle(node).color.match(/\\d+/g).slice(0, 3).map(Number);
  node.remove();
  return found;
}"""


def what_is_missing() -> str | None:
    """Return why no browser can be started; None if one can."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed (pip install playwright)"
    if find_chromium() is None:
        return "no Chromium on the PATH (apt-get install chromium)"
    return None


def find_chromium() -> str | None:
    """Return the path of a Chromium on the PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def require_browser(missing: str | None, environment: Mapping[str, str] = os.environ) -> None:
    """Skip a test that lacks its browser; fail it on CI, where one must be installed."""
    if missing is None:
        return
    if environment.get("CI") == "true":
        pytest.fail(f"pages must be tested on CI: {missing}")
    pytest.skip(missing)


def compute(browser, scripts, expression, inputs):
    """Return the value of a JavaScript expression over `inputs`, after these scripts."""
    page = browser.new_page()
    try:
        program = "\n".join([*scripts, f"const inputs = {json.dumps(inputs)};"])
        return page.evaluate(f"() => {{ {program}\nreturn {expression}; }}")
    finally:
        page.close()


class Visit:
    """An open page; `complaints` collects whatever the browser's console says."""

    def __init__(self, page, path):
        self.page = page
        self.complaints = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._only_itself)
        self.address = path.as_uri()
        page.goto(self.address)

    def _only_itself(self, request):
        if request.url != self.address:
            self.complaints.append(f"asked for {request.url}")

    def see_all(self):
        """Scroll through the page, so that everything gets drawn, and back to its top."""
        self.page.evaluate("""async () => {
          for (let y = 0; y < document.documentElement.scrollHeight; y += 500) {
            scrollTo({ top: y, behavior: "instant" });
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          }
          scrollTo({ top: 0, behavior: "instant" });
        }""")

    def unfold(self):
        """Open everything that is folded, also inside what was folded."""
        self.page.evaluate("""async () => {
          for (let level = 0; level < 3; level += 1) {
            document.querySelectorAll("details").forEach((node) => { node.open = true; });
            await new Promise((done) => setTimeout(done, 50));
          }
        }""")

    def cut(self):
        """Return every element and every word in a figure that is not wholly seen."""
        return self.page.evaluate(CUT) + self.page.evaluate(CUT_IN_FIGURES)

    def overlaps(self):
        """Return pairs of texts in a figure that lie on each other."""
        return self.page.evaluate(OVERLAPS)

    def rows(self, table):
        """Return the texts of the rows that a table shows."""
        return self.page.evaluate(ROWS, table)

    def head(self, table):
        """Return the names of a table's columns."""
        return self.page.evaluate(HEAD, table)

    def column(self, table, name):
        """Return the texts of one column."""
        index = self.head(table).index(name)
        return [row[index] for row in self.rows(table)]

    def heading(self, table, name):
        """Return the button over a column."""
        return self.page.locator(f"#{table} thead button").nth(self.head(table).index(name))

    def sorted_by(self, table):
        """Return which column says that it is sorted, and how."""
        found = self.page.locator(f"#{table} th[aria-sort]").all()
        return [
            (one.inner_text().split("\u00a0")[0], one.get_attribute("aria-sort")) for one in found
        ]

    def color(self, name):
        """Return a color of the style by its name, as three numbers up to 255."""
        return self.page.evaluate(COLOR, name)
