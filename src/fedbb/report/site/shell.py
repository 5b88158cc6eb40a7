"""The shell of an interactive page: one HTML file with its style, script and data inside."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fedbb._util.files import replacing
from fedbb.errors import RunError
from fedbb.report.text import to_bytes

# Signs that could end the element the data stands in, or the line a script reads it from.
UNSAFE = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>&'\u2028\u2029"})


@dataclass(frozen=True)
class Page:
    """What a page adds to the shell.

    `body`, `style` and `script` are files of this package and trusted; `title` and `data` are not.
    The script finds the data by `shell.data()` and shows it by `textContent` only.
    """

    title: str
    data: Any
    body: str
    style: str = ""
    script: str = ""


def write_page(path: Path, page: Page) -> None:
    """Write a page, making its folder if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(to_bytes(render_page(page)))
    except OSError as error:
        raise RunError(f"page {path} cannot be written: {error}") from error


def render_page(page: Page) -> str:
    """Return a page as HTML that loads nothing and runs nothing but its own script."""
    style = read_part("shell.css") + page.style
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
<noscript><p class="notice">This page draws its tables and figures by a script of its own,
which your browser has switched off.</p></noscript>
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


def read_part(name: str, package: str = "fedbb.report.site") -> str:
    """Return a file of a package as text with plain line ends, as the digests need it."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
