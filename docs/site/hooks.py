"""Pages of the documentation site that are made of the code, of notebooks and of files above docs/.

mkdocs calls the functions whose names begin with `on_`.
"""

from __future__ import annotations

import base64
import inspect
import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from studies.leaderboard import make_page
from typer.main import get_group

import fedbb
from fedbb.cli.main import VERBS, app
from fedbb.cli.methods import describe_method
from fedbb.methods import METHODS
from fedbb.report.page.shell import render_page

ROOT = Path(__file__).parents[2]
TOP = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "studies/README.md": "studies.md",
}
"""Files above docs/ that are pages of the site."""

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```.*?^```$|(?: {4}[^\n]*\n)+)", re.M | re.S)
NAMED = re.compile(r"^```(\w+) ([\w./-]+)$", re.M)
"""A block that shows a file, as in ```toml digits.toml."""

STYLE = """
.md-grid { max-width: 70rem; }
.md-typeset h1, .md-typeset h2 { font-weight: 600; color: inherit; }
.md-typeset table:not([class]) { font-size: 0.68rem; }
.md-typeset math[display="block"] { overflow-x: auto; overflow-y: hidden; padding: 0.4rem 0; }
@media screen and (min-width: 45em) {
  .md-typeset td code { word-break: normal; }
  .md-typeset td:first-child code { white-space: nowrap; }
}
.md-typeset .report { width: 100%; height: 80vh; border: 1px solid #8886; }
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that docs/ does not hold."""
    pages = {target: (ROOT / source).read_text("utf-8") for source, target in TOP.items()}
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = notebook_page(path)
    for name in METHODS:
        pages[f"methods/{name}.md"] = method_page(name)
    for package in ("fedbb", *(f"fedbb.{name}" for name in fedbb._PACKAGES)):
        pages[f"reference/{package}.md"] = f"# {package}\n\n::: {package}\n" + options(package)
    pages["commands.md"] = command_page()
    pages["site.css"] = STYLE
    pages["iframe-worker.js"] = Path(__file__).with_name("iframe-worker.js").read_text("utf-8")
    for target, text in pages.items():
        files.append(File.generated(config, target, content=text))
    for source in linked_files():
        text = (ROOT / source).read_text("utf-8")
        if source.suffix != ".md":
            language = {".py": "python", ".toml": "toml"}.get(source.suffix, "text")
            text = f"# {source}\n\n```{language}\n{text.rstrip()}\n```\n"
        files.append(File.generated(config, file_page(source), content=text))
    if (demo := ROOT / "demo" / "index.html").exists():
        files.append(File.generated(config, "demo.html", abs_src_path=str(demo)))
    board = make_page()
    back = '<p><a href="index.html">fedbb</a> · <a href="results.html">Results</a></p>\n'
    board = render_page(replace(board, body=back + board.body))
    files.append(File.generated(config, "leaderboard.html", content=board))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Follow links that leave docs/, and fill in formulas and sources."""
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # the only page of its section; its code is wide
    markdown = NAMED.sub(r'```\1 title="\2"', markdown)
    if uri == "equations.md":
        markdown = with_sources(with_formulas(markdown))
    if uri == "methods.md":
        markdown = with_method_links(markdown)
    if uri == "report.md" and files.get_file_from_path("demo.html"):
        markdown += '\n\n## A live page\n\n<iframe class="report" src="demo.html"></iframe>\n'
    if uri == "results.md":
        title, _, rest = markdown.partition("\n")
        link = "[Leaderboard](leaderboard.html): all stored results in tables that can be sorted."
        markdown = f"{title}\n\n{link}\n{rest}"
    own = {target: source for source, target in TOP.items()}.get(uri, f"docs/{uri}")
    if uri.startswith(("methods/", "reference/", "notebooks/", "files/", "commands")):
        return markdown  # made for the site
    parts = FENCE.split(markdown)
    changed = [LINK.sub(lambda m: follow(m, own, uri), part) for part in parts[::2]]
    parts[::2] = changed
    return "".join(parts)


def follow(found: re.Match[str], own: str, uri: str) -> str:
    """Return a link between files of the repository as one between pages of the site."""
    text, path, anchor = found.groups()
    target = target_of(path, own)
    if target is None:
        return found[0]
    if target in TOP:
        new = TOP[target]
    elif (ROOT / target).is_dir():
        return text  # folders are no pages
    elif target.startswith("docs/") and not target.startswith("docs/results/"):
        new = target.removeprefix("docs/")
    else:
        new = file_page(Path(target))
    return f"[{text}]({posixpath.relpath(new, posixpath.dirname(uri) or '.')}{anchor or ''})"


def target_of(path: str, own: str) -> str | None:
    """Return the file of the repository that a link of one of its files leads to."""
    if not path or re.match(r"[a-z]+:", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(own), path))


def linked_files() -> Iterator[Path]:
    """Yield the files above docs/ that pages link to and that are no pages themselves."""
    found = set()
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / source for source in TOP)]
    for page in pages:
        own = page.relative_to(ROOT).as_posix()
        for _, path, _ in LINK.findall("".join(FENCE.split(page.read_text("utf-8"))[::2])):
            target = target_of(path, own)
            inside = (
                target and target.startswith("docs/") and not target.startswith("docs/results/")
            )
            if target and target not in TOP and not inside and (ROOT / target).is_file():
                found.add(Path(target))
    yield from sorted(found)


def file_page(source: Path) -> str:
    """Return the page of the site that shows a file."""
    return f"files/{source.as_posix()}.md".replace("README.md.md", "README.md")


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown, with the outputs that it holds."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                pixels = "".join(data["image/png"]).replace("\n", "")
                assert base64.b64decode(pixels)
                parts.append(f"![figure](data:image/png;base64,{pixels})")
            elif shown := "".join(output.get("text", data.get("text/plain", []))):
                parts.append(f"```text\n{shown.rstrip()}\n```")
    name = path.name
    parts.append(f"This page is the notebook `examples/notebooks/{name}` of the repository.")
    return "\n\n".join(parts)


def method_page(name: str) -> str:
    """Return the page of a method: its parts, costs and options, as `fedbb methods` tells them."""
    row = describe_method(name)
    builder = METHODS[name]
    about, _, arguments = (inspect.getdoc(builder) or "").partition("\n\nArgs:")
    told = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, re.M))
    slots = {
        slot: ", ".join(row[slot]) if isinstance(row[slot], list) else row[slot]
        for slot in (
            "loss",
            "penalties",
            "weighting",
            "merge",
            "sampling",
            "personal",
            "statistics",
            "server",
        )
    }
    lines = [f"# {name}", about, "", "| part | value |", "|---|---|"]
    lines += [f"| {slot} | `{value}` |" for slot, value in slots.items() if value]
    lines += [
        f"| tasks | {', '.join(row['tasks'])} |",
        f"| cost beside FedAvg | {row['cost']} |",
        f"| the server needs to see | {row['server_sees']} |",
        "",
    ]
    if row["options"]:
        lines += ["## Options", "", "| option | default | meaning |", "|---|---|---|"]
        for option, default in row["options"].items():
            meaning = " ".join(told.get(option, "").split()).replace("|", "\\|")
            lines.append(f"| `{option}` | `{default!r}` | {meaning} |")
    lines += ["", "## Use", "", "```toml", "[method]", f'name = "{name}"', "```", ""]
    lines += [
        "```python",
        "import fedbb",
        "",
        f"method = fedbb.methods.{builder.__name__}()",
        "```",
        "",
    ]
    lines += [
        "Formulas, sources and differences between paper and public code: [methods](../methods.md)."
    ]
    return "\n".join(lines)


def with_method_links(markdown: str) -> str:
    """Put links to the pages of the methods before the page that explains them together."""
    links = " · ".join(f"[{name}](methods/{name}.md)" for name in METHODS)
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n**A page for each:** {links}\n{rest}"


def command_page() -> str:
    """Return the help of every verb."""
    group = get_group(app)
    parts = ["# Command line", "Every verb has `--help`. These are their texts.", ""]
    for verb, line in VERBS.items():
        command = group.get_command(click.Context(group), verb)
        assert command is not None
        text = line if hasattr(command, "commands") else plain(command.help)
        parts += [f"## fedbb {verb}", text, "", "| option | meaning |", "|---|---|"]
        parts += list(option_rows(command))
        for name, inner in getattr(command, "commands", {}).items():
            parts += ["", f"### fedbb {verb} {name}", plain(inner.help), ""]
            parts += ["| option | meaning |", "|---|---|", *option_rows(inner)]
        parts.append("")
    return "\n".join(parts)


def option_rows(command: Any) -> Iterator[str]:
    """Yield the arguments and options of a command as rows of a table."""
    for parameter in command.params:
        names = (
            ", ".join(f"`{name}`" for name in parameter.opts)
            if parameter.opts[0].startswith("-")
            else f"`{parameter.name.upper()}`"
        )
        meaning = plain(getattr(parameter, "help", None)).replace("|", "\\|")
        yield f"| {names} | {meaning} |"


def plain(text: str | None) -> str:
    """Return a help text in which Markdown finds no tags, as in runs/<name>."""
    return (text or "").replace("<", "&lt;")


def with_formulas(markdown: str) -> str:
    """Return a page with its formulas as MathML, which browsers draw without a script."""
    return re.sub(
        r"^\$\$(.*?)\$\$$",
        lambda found: convert(found[1], display="block"),
        markdown,
        flags=re.M | re.S,
    )


def with_sources(markdown: str) -> str:
    """Return a page with the source of each function that it names."""

    def source(found: re.Match[str]) -> str:
        module, _, name = found[1].rpartition(".")
        text = inspect.getsource(getattr(import_module(module), name))
        return f"`{found[1]}`\n\n```python\n{text}```"

    return re.sub(r"<!-- source: ([\w.]+) -->", source, markdown)


def options(package: str) -> str:
    """Return the options of a page of the API reference: the names that the package exports."""
    names = fedbb.__all__ if package == "fedbb" else import_module(package).__all__
    lines = "".join(f"        - {name}\n" for name in names)
    return f"    options:\n      members:\n{lines}"
