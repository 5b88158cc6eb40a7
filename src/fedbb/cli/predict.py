"""`fedbb predict`: predictions of a trained model for files, and scores if labels are known."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedbb._util.files import write_text
from fedbb._util.table import make_table, to_rich
from fedbb.cli.common import AllowCode, Json, Quiet, echo, print_json, say
from fedbb.errors import RunError
from fedbb.inference.model import load_model
from fedbb.inference.prediction import Predictions, ReadOptions, read_samples, write_csv
from fedbb.inference.prediction import predict as predict_samples
from fedbb.report.score_tables import class_table, figure_text, means_note
from fedbb.report.text import metric_title


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder, or a model file of one.")],
    data: Annotated[
        str,
        typer.Argument(
            help="An .npz file, a CSV file that names images, a folder of images, an image, a "
            "table with the columns of the training data, or the name of a data set."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File for the predictions as CSV; printed if not given.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the model of the best round.")] = False,
    client: Annotated[
        int | None, typer.Option(min=0, help="Use the model that this client has of its own.")
    ] = None,
    image_column: Annotated[
        str, typer.Option(help="Column of a CSV file that names the images.")
    ] = "image",
    class_column: Annotated[
        str | None, typer.Option(help="Column of a CSV file or a table that holds the class.")
    ] = None,
    resize: Annotated[
        bool, typer.Option("--resize", help="Scale images to the size that the model takes.")
    ] = False,
    allow_unknown: Annotated[
        bool,
        typer.Option(
            "--allow-unknown", help="Encode categories that the training data lacks as zeros."
        ),
    ] = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict with a trained model; only the model and the files named here are read.

    Predictions are one CSV row for each sample. If the data has labels, the scores are shown too:
    external validation at a site that took no part in training.
    """
    if out is not None and not out.parent.is_dir():
        raise RunError(f"{out} cannot be written: {out.parent} is not a folder")
    model = load_model(run, best=best, client=client, allow_code=allow_code)
    options = ReadOptions(image_column, class_column, resize, allow_unknown)
    found = predict_samples(model, read_samples(data, model.info, options))
    table = io.StringIO()
    write_csv(found, table)
    if out is not None:
        write_text(out, table.getvalue())
    if as_json:
        print_json(_as_json(found, out))
    elif out is None:
        echo(table.getvalue(), nl=False)
    if not quiet and not as_json:
        _show(found, out)


def _as_json(found: Predictions, out: Path | None) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "samples": len(found.names),
        "scores": None if found.scores is None else found.scores.as_json(),
        "report": None if found.report is None else found.report.to_json(),
    }
    if out is not None:
        return {**summary, "out": str(out)}
    rows = zip(found.names, found.predicted, found.probabilities.tolist(), strict=True)
    return {
        **summary,
        "classes": list(found.classes),
        "predictions": [
            {"sample": name, "predicted": list(said), "probabilities": chances}
            for name, said, chances in rows
        ],
    }


def _show(found: Predictions, out: Path | None) -> None:
    console = Console(stderr=True)
    where = "" if out is None else f", written to {out}"
    say(console, f"{len(found.names)} predictions{where}")
    if found.report is None:
        say(console, "no labels, so no scores")
        return
    ends = {} if found.report.intervals is None else found.report.intervals.macro
    rows = [
        (metric_title(name), figure_text(name, value, ends.get(name)))
        for name, value in found.report.macro.items()
    ]
    note = means_note(found.report)
    console.print(to_rich(make_table(["score", "mean over classes"], rows, note=note)))
    console.print(to_rich(class_table(found.report, intervals=False)))
