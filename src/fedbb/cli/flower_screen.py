"""Terminal tables of a federation's status and of a doctor's findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

STYLES = {
    "ok": "green",
    "warn": "yellow",
    "bad": "bold red",
    "online": "green",
    "offline": "yellow",
    "not registered": "yellow",
    "dismissed": "dim",
    "completed": "green",
    "failed": "bold red",
}


def findings_table(findings: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each finding: its level, its subject, and advice."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        told = Text(finding["told"])
        if finding["advice"]:
            told.append(f"\n→ {finding['advice']}", style="bold")
        table.add_row(_colored(finding["level"]), Text(finding["subject"]), told)
    return table


def status_tables(state: dict[str, Any]) -> Iterator[Table | Text | str]:
    """Yield the server's address, its sites and its runs."""
    yield Text(f"server {state['server']}")
    sites = Table(title="Sites", title_justify="left")
    for name in ("site", "status", "last came online (UTC)"):
        sites.add_column(name)
    for site in state["sites"]:
        sites.add_row(site["site"], _colored(site["status"]), _moment(site["since"]))
    yield sites
    if not state["runs"]:
        yield "no runs yet"
        return
    runs = Table(title="Runs, newest first", title_justify="left")
    for name in ("begun (UTC)", "status", "rounds", "MB to / from", "folder"):
        runs.add_column(name, overflow="fold")
    for run in state["runs"]:
        runs.add_row(
            _moment(run["begun"])[:16],
            _colored(run["status"].removeprefix("finished:")),
            f"{run['done']} of {run['rounds'] or '?'}",
            f"{run['bytes_to_sites'] / 1e6:.1f} / {run['bytes_from_sites'] / 1e6:.1f}",
            Text(Path(run["folder"]).name),
        )
    yield runs
    if state["runs"][0]["details"]:
        yield Text(f"the newest run ended with: {state['runs'][0]['details']}")


def _colored(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))


def _moment(text: str) -> str:
    """Return an ISO date and time without its fractions."""
    return text[:19].replace("T", " ") or "–"
