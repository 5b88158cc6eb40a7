"""A page opened in a browser, read and handled as its reader would."""

from __future__ import annotations

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

    def rows(self, sheet):
        """Return the texts of the rows that a table shows."""
        return self.page.evaluate(ROWS, sheet)

    def head(self, sheet):
        """Return the names of a table's columns."""
        return self.page.evaluate(HEAD, sheet)

    def column(self, sheet, name):
        """Return the texts of one column."""
        index = self.head(sheet).index(name)
        return [row[index] for row in self.rows(sheet)]

    def heading(self, sheet, name):
        """Return the button over a column."""
        return self.page.locator(f"#{sheet} thead button").nth(self.head(sheet).index(name))

    def sorted_by(self, sheet):
        """Return which column says that it is sorted, and how."""
        found = self.page.locator(f"#{sheet} th[aria-sort]").all()
        return [
            (one.inner_text().split("\u00a0")[0], one.get_attribute("aria-sort")) for one in found
        ]

    def color(self, name):
        """Return a color of the style by its name, as three numbers up to 255."""
        return self.page.evaluate(COLOR, name)
