"""How the figures of a page came about: methods, settings, runs, commands, environment."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedbb.report.groups import settings_of
from fedbb.report.method_comparison import MethodComparison
from fedbb.report.page import Code, Section, Tables
from fedbb.report.results import RunResult, summary_of
from fedbb.report.text import Table
from fedbb.report.wording import method_story, method_title, settings_text


def methods_section(runs: Iterable[RunResult]) -> Section:
    """Return what each method does, with the options it was given."""
    rows = {
        (
            method_title(run.recipe.method.name),
            method_story(run.recipe.method.name),
            settings_text(run.recipe.method.options) or "defaults",
        ): None
        for run in runs
    }
    table = Table("Methods", ("method", "what it does", "options"), tuple(rows))
    return Section("Methods", (Tables((table,)),))


def runs_section(parts: Sequence[MethodComparison], out: Path) -> Section:
    """Return the settings of each comparison, and each of its runs with the command for it."""
    blocks: list[Tables | Code] = []
    for part in parts:
        comparison = part.comparison
        runs = [run for method in comparison.methods for run in method.runs]
        tables = (_settings_table(comparison.title, runs[0]), _run_table(comparison.title, runs))
        blocks.append(Tables(tables))
        commands = tuple(command(run, out) for run in runs)
        blocks.append(Code(f"Running them again: {comparison.title}", commands))
    return Section("Settings and runs", tuple(blocks))


def environment_section(runs: Iterable[RunResult]) -> Section:
    """Return the versions and the machine behind the runs, once for each that differs."""
    found = dict.fromkeys(tuple(run.environment.items()) for run in runs)
    tables = tuple(
        Table("Software and machine", ("what", "which"), tuple(environment))
        for environment in found
    )
    return Section("Environment", (Tables(tables),))


def command(run: RunResult, out: Path) -> str:
    """Return the command that repeats a run, to be typed in the folder of the page."""
    inside = run.path.is_relative_to(out)
    folder = run.path.relative_to(out) if inside else run.path
    recipe, again = folder / "recipe.json", Path("again") / run.path.name
    return f"fedbb run {shlex.quote(str(recipe))} --out {shlex.quote(str(again))}"


def _settings_table(title: str, run: RunResult) -> Table:
    settings = settings_of(run.recipe)
    rows = tuple((key, str(value)) for key, value in settings.items() if value not in (None, {}))
    return Table(f"Settings: {title}", ("setting", "value"), rows)


def _run_table(title: str, runs: Sequence[RunResult]) -> Table:
    rows = tuple(
        (
            run.path.name,
            method_title(run.recipe.method.name),
            str(run.recipe.seed),
            f"{run.seconds:.1f}",
            summary_of(run).sha256[:16],
        )
        for run in runs
    )
    head = ("run", "method", "seed", "seconds", "SHA-256 of the model")
    return Table(f"Runs: {title}", head, rows)
