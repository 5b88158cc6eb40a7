"""Chromium without a window: what a page has become once its script has run."""

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")


def render(page, *, budget=4000):
    """Return a page's elements as HTML after its script, and what it complained of."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            f"--virtual-time-budget={budget}",
            "--window-size=1280,20000",
            "--dump-dom",
            Path(page).resolve().as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def compute(scripts, expression, folder):
    """Return the value of a JavaScript expression after these scripts."""
    program = "\n".join(scripts)
    page = folder / "compute.html"
    page.write_text(
        f"<pre id='answer'></pre><script>{program}\n"
        f"document.getElementById('answer').textContent = JSON.stringify({expression});</script>"
    )
    elements, complaints = render(page)
    assert complaints == []
    return json.loads(html.unescape(re.search(r"<pre[^>]*>(.*?)</pre>", elements, re.S).group(1)))


MEASURE = """
<iframe style="width:390px;height:20000px;border:0"></iframe>
<iframe style="width:1280px;height:20000px;border:0"></iframe>
<pre id="answer"></pre>
<script>
const frames = [...document.querySelectorAll("iframe")];
const measure = (inner) => ({
  page: inner.documentElement.scrollWidth - inner.documentElement.clientWidth,
  wide: [...inner.querySelectorAll("main *")].filter((node) => {
    if (node.closest(".table, pre, svg") !== null || node.clientWidth === 0) return false;
    return node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== "inline";
  }).map((node) => node.tagName + "." + node.className),
});
const slide = (inner) => {
  for (const [key, value] of Object.entries(MOVES)) {
    const input = inner.getElementById("slide-" + key);
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }
  return inner.getElementById("outcome").textContent;
};
const tell = () => {
  const [phone, desk] = frames.map((frame) => frame.contentDocument);
  document.getElementById("answer").textContent = JSON.stringify({
    elements: desk.body.outerHTML, phone: measure(phone), desk: measure(desk), moved: slide(desk),
  });
};
for (const frame of frames) frame.src = "SOURCE";
setTimeout(tell, 3000);
</script>
"""


def look(page, moves):
    """Return a page's elements, what is too wide at two widths, and what its sliders lead to."""
    harness = page.with_name("frames.html")
    program = MEASURE.replace("SOURCE", page.name).replace("MOVES", json.dumps(moves))
    harness.write_text(program)
    elements, complaints = render(harness, budget=8000)
    found = re.search(r'<pre id="answer">(.*?)</pre>', elements, re.S).group(1)
    return {**json.loads(html.unescape(found)), "complaints": complaints}
