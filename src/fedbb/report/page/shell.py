"""The frame of every page: one HTML file with its style, script and data inside."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fedbb._util.files import write_text

# Signs that could end the element the data stands in, or the line a script reads it from.
UNSAFE = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>&'\u2028\u2029"})


@dataclass(frozen=True)
class Page:
    """What a page adds to the frame.

    The script reads the data by `shell.data()` and shows it by `textContent` only.

    Args:
        title: Title of the page; may hold any text.
        data: Values that JSON can hold, with any texts.
        body: Trusted HTML of this package.
        style: Trusted CSS of this package.
        script: Trusted JavaScript of this package.
    """

    title: str
    data: Any
    body: str
    style: str = ""
    script: str = ""


def write_page(path: Path, page: Page) -> Path:
    """Write a page, making its folder if needed, and return its path."""
    return write_text(path, render_page(page))


def render_page(page: Page) -> str:
    """Return a page as HTML that loads nothing and runs nothing but its own script."""
    style = read_part("charts.css") + read_part("shell.css") + page.style
    script = read_part("shell.js") + read_part("charts.js") + page.script
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="top">
<h1>{escape(page.title)}</h1>
<div class="tools">
<button type="button" id="theme" hidden></button>
<button type="button" id="print" hidden>Print</button>
</div>
</header>
<main id="content">
{page.body}
</main>
<noscript><p class="notice">This page needs JavaScript to show its tables and figures; its script
is inside the page and loads nothing.</p></noscript>
<div id="tip" role="status" hidden></div>
<script type="application/json" id="data">{island(page.data)}</script>
<script>{script}</script>
</body>
</html>
"""


def island(data: Any) -> str:
    """Return JSON that may stand inside a script element, whatever its texts hold."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(UNSAFE)


def policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that admits exactly this style and this script."""
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def read_part(name: str) -> str:
    """Return a file of this package as text with plain line ends, as the digests need it."""
    return resources.files("fedbb.report.page").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
