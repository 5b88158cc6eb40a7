"""`fedbb refit`: a finished run's model with its classifier set in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from fedbb._util.table import Entry, Table, make_table, to_rich
from fedbb.cli.common import AllowCode, Json, Quiet, print_json, progress_bar
from fedbb.cli.screens import percent
from fedbb.errors import RecipeError
from fedbb.records import FloatArray
from fedbb.runs.classifier import Refit, find_form
from fedbb.runs.classifier import refit as fit

FIGURES = {"accuracy": "accuracy", "balanced_accuracy": "balanced", "auroc": "AUROC"}


def refit(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    rule: Annotated[
        str, typer.Option(help="lda, ridge (regression on ±1) or means (nearest class mean).")
    ] = "lda",
    prior: Annotated[
        str, typer.Option(help="equal weighs all classes alike, federation by frequency.")
    ] = "equal",
    shrinkage: Annotated[
        str, typer.Option(help="Shrinkage of the covariance, from 0 to 1, or oas to choose it.")
    ] = "oas",
    blend: Annotated[
        str,
        typer.Option(
            help="Share of the closed form, from 0 to 1, or validation to choose it on the run's "
            "validation data."
        ),
    ] = "1",
    out: Annotated[
        Path | None, typer.Option(help="File for the model with the new classifier; one run only.")
    ] = None,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Set the classifier of finished runs in closed form, without training, and score it.

    Each client adds up the embeddings of its training data by class; the classifier follows from
    the sums. Nothing is written to the folders of the runs.
    """
    if out is not None and len(runs) > 1:
        raise RecipeError(f"--out takes the model of one run, and {len(runs)} are named")
    form = find_form(rule, prior, _number("shrinkage", shrinkage, "oas"))
    share = _number("blend", blend, "validation")
    found = []
    with progress_bar("runs", hidden=quiet or as_json) as progress:
        for done, path in enumerate(runs):
            progress(done, len(runs))
            found.append(fit(path, form, blend=share, out=out, allow_code=allow_code))
    if as_json:
        entries = [
            {"run": str(path), **refitted.as_json()}
            for path, refitted in zip(runs, found, strict=True)
        ]
        print_json(entries)
    elif not quiet:
        Console().print(to_rich(_table(runs, found, rule)))


def _number(name: str, text: str, word: str) -> Any:
    """Return the number that a text is, or the one word that is allowed in its place."""
    if text == word:
        return word
    try:
        return float(text)
    except ValueError:
        raise RecipeError(f"--{name} is a number or {word}, not {text!r}") from None


def _table(runs: Sequence[Path], found: Sequence[Refit], rule: str) -> Table:
    shown = [name for name in FIGURES if name in found[0].trained["test"].macro]
    rows: list[Sequence[Entry]] = []
    for path, refitted in zip(runs, found, strict=True):
        trained, fitted = refitted.trained["test"], refitted.fitted["test"]
        worst = (_worst(trained.per_class["recall"]), _worst(fitted.per_class["recall"]))
        pairs = [*((trained.macro[name], fitted.macro[name]) for name in shown), worst]
        cells = [" → ".join(percent(_defined(value)) for value in pair) for pair in pairs]
        rows.append((path.name, f"{refitted.blend:g}", *cells))
    head = ("run", "blend", *(FIGURES[name] for name in shown), "worst class")
    title = f"As trained → with the classifier by {rule}, on test data, %"
    return make_table(head, rows, title, words=1)


def _worst(recall: FloatArray) -> float:
    return float(np.nanmin(recall)) if np.isfinite(recall).any() else math.nan


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value
