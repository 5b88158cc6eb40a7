"""`fedbb inspect`: the imbalance of labels, from a recipe, a CSV file or a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import TaskProgressColumn

from fedbb._util.files import parse_json
from fedbb._util.names import nearest
from fedbb._util.validation import explain_validation_error
from fedbb.aggregation.merging import ClientBalanced
from fedbb.analysis.inspect import ClientAssignment, divide_labels, examine
from fedbb.analysis.label_files import LabelTable, Layout, read_label_arrays, read_label_table
from fedbb.analysis.label_statistics import Labels, from_array
from fedbb.analysis.measures import Settings
from fedbb.cli.common import Json, Quiet, echo, print_json, progress_bar, say
from fedbb.data.download import Progress
from fedbb.data.label_policy import Policy
from fedbb.data.registry import dataset_names
from fedbb.errors import DataError, RecipeError
from fedbb.losses.cross_entropy import ScaledCrossEntropy
from fedbb.losses.logit_calibrated import Calibrated
from fedbb.losses.pnb import PNB
from fedbb.methods import Method
from fedbb.partition.algorithms import assign_groups
from fedbb.partition.partition import Partition
from fedbb.partition.registry import Rule
from fedbb.recipes.check import check_recipe
from fedbb.recipes.privacy import exposure_notes
from fedbb.recipes.reader import make_recipe, read_recipe, read_values
from fedbb.recipes.spec import Recipe
from fedbb.records import IntArray, Task
from fedbb.report.inspection import print_summary, write_folder, write_fragment
from fedbb.runs.federation import prepare


def inspect(
    source: Annotated[
        str,
        typer.Argument(
            help="A table of labels (.csv, .csv.gz, .parquet), an .npz, a data set by name, a "
            "recipe, a partition beside its recipe, or a run folder."
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option(help="Column of labels; repeatable for 0/1 columns. Guessed if not given."),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="The column that names the client: site, hospital, patient.")
    ] = None,
    divide: Annotated[
        int | None, typer.Option(min=1, help="Number of clients of the partition.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="Kind of partition: label-skew, quantity-skew or even.")
    ] = "label-skew",
    concentration: Annotated[
        float, typer.Option(help="δ of a skewed partition; the smaller, the more uneven.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the partition.")] = 0,
    partition: Annotated[Path | None, typer.Option(help="Partition file to use.")] = None,
    patient: Annotated[
        str | None, typer.Option(help="Column that names the patient; guessed if not given.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", help="Column with unique values; guessed if not given.")
    ] = None,
    task: Annotated[
        Task | None, typer.Option(help="Whether one column of labels holds one class or several.")
    ] = None,
    uncertain: Annotated[
        Policy | None, typer.Option(help="What a label of −1 means in 0/1 columns.")
    ] = None,
    blank: Annotated[
        Policy | None, typer.Option(help="What a blank label means in 0/1 columns.")
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="beta, tau, mu, class_factor, alpha_min, margin, label_margin, gamma, reading, "
            "batch_size, saturation; or a recipe's key.",
        ),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Print the advice as a fragment of a recipe.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for a page, CSV, JSON and advice.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the imbalance of cases, classes and clients, and show what PNB and CBR do."""
    layout = Layout(
        tuple(label or ()), clients, patient, identity, task, uncertain=uncertain, blank=blank
    )
    rule = None if divide is None else _rule(kind, divide, concentration, seed)
    with progress_bar(
        "reading", hidden=quiet or as_json or suggest, column=TaskProgressColumn()
    ) as advance:
        found = find(Request(source, layout, rule, partition, values or (), advance))
        result = examine(
            found.labels, found.assignment, found.settings, title=found.title, notes=found.notes
        )
    fragment = write_fragment(result.advice, found.data)
    if out is not None:
        write_folder(result, fragment, out)
    if as_json:
        print_json(result.as_json(), indent=None)
    elif suggest:
        echo(fragment, nl=False)
    elif not quiet:
        console = Console()
        print_summary(result, console)
        if out is not None:
            say(console, f"page: {out / 'index.html'}")


def _rule(kind: str, clients: int, concentration: float, seed: int) -> Rule:
    if kind == "even":
        return Rule(kind, clients=clients, seed=seed)
    return Rule(kind, clients=clients, concentration=concentration, seed=seed)


ONE = ("all",)


@dataclass(frozen=True)
class Request:
    """What the user asked to inspect, and how to read and divide it."""

    source: str
    layout: Layout
    rule: Rule | None = None
    partition: Path | None = None
    values: Sequence[str] = ()
    progress: Progress | None = None

    @property
    def path(self) -> Path:
        """The source as a path."""
        return Path(self.source)


@dataclass(frozen=True, eq=False)
class Found:
    """Labels and their clients, and the data as a recipe would name it, where it can."""

    title: str
    labels: Labels
    assignment: ClientAssignment
    settings: Settings
    data: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


def find(request: Request) -> Found:
    """Return what a table, an .npz file, a data set's name, a recipe, run or partition holds."""
    path = request.path
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending in ("csv", "npz", "parquet") and not path.is_dir():
        return _from_table(request, ending)
    if path.is_dir():
        return _from_run(request, path)
    if ending == "json" and _is_partition(path):
        return _from_run(request, path.parent)
    if ending in ("toml", "json"):
        return _from_recipe(request, read_recipe(path, _dotted(request.values)))
    if request.source not in dataset_names():
        raise DataError(
            f"{request.source!r} is not a data set, a .csv, .parquet, .npz, recipe, partition or "
            "run folder" + nearest(request.source, dataset_names())
        )
    values = {"data": {"name": request.source}, "method": {"name": "fedbb"}}
    return _from_recipe(request, make_recipe(read_values(_dotted(request.values), values)))


def _from_table(request: Request, ending: str) -> Found:
    table = (
        read_label_arrays(request.path, request.layout)
        if ending == "npz"
        else read_label_table(request.path, request.layout, request.progress)
    )
    clients, owners = _divide(table, request)
    return Found(
        request.path.name,
        table.labels,
        ClientAssignment(clients, owners, table.patients),
        _settings(request.values, Settings()),
        _table_data(table, request, ending),
        _table_notes(table, ending),
    )


def _divide(table: LabelTable, request: Request) -> tuple[tuple[str, ...], IntArray]:
    rule, samples = request.rule, len(table.labels)
    if request.partition is not None:
        partition = Partition.load(request.partition).check(table.labels.as_array())
        return _client_names(partition), partition.owners
    if table.clients is None or table.owners is None:
        if rule is None:
            return ONE, np.zeros(samples, dtype=np.int64)
        return divide_labels(table.labels, rule)
    if rule is None:
        return table.clients, table.owners
    values = np.array(table.clients)[table.owners]
    number = rule.clients or 1
    return tuple(map(str, range(number))), assign_groups(values, number, rule.seed or 0)


def _client_names(partition: Partition) -> tuple[str, ...]:
    return tuple(str(client) for client in range(len(partition.clients)))


def _table_data(table: LabelTable, request: Request, ending: str) -> dict[str, Any] | None:
    """Return the data of a recipe; names joined in one column no loader of a recipe reads."""
    layout, multiclass = table.layout, table.labels.task is Task.MULTICLASS
    if ending == "npz":
        data: dict[str, Any] = {"name": "npz", "path": str(request.path)}
    elif request.path.suffix in (".gz", ".parquet") or not (multiclass or len(layout.labels) > 1):
        return None
    else:
        options: dict[str, Any] = {"image_column": layout.identity} if layout.identity else {}
        if multiclass:
            options["class_column"] = layout.labels[0]
        else:
            options |= {"label_columns": list(layout.labels)}
            options |= {"uncertain": layout.uncertain, "blank": layout.blank}
        if layout.clients:
            options["columns"] = [layout.clients]
        data = {"name": "table", "path": str(request.path), "options": options}
    partition = _partition_values(request, layout.clients)
    return data if partition is None else {**data, "partition": partition}


def _partition_values(request: Request, column: str | None) -> dict[str, Any] | None:
    """Return the partition of a recipe; a saved one is of all rows, and a recipe's is not."""
    rule = request.rule
    if column:
        number = {} if rule is None else {"clients": rule.clients}
        return {"kind": "column", "column": column, **number}
    if rule is None:
        return None
    return {key: value for key, value in vars(rule).items() if value is not None}


def _table_notes(table: LabelTable, ending: str) -> tuple[str, ...]:
    layout = table.layout
    if ending == "npz":
        return ()
    shown = ", ".join(layout.labels[:4]) + (", …" if len(layout.labels) > 4 else "")
    notes = [f"labels from {shown}"]
    if len(layout.labels) > 1:
        notes.append(f"−1 by policy {layout.uncertain}, blanks by policy {layout.blank}")
    if layout.patient:
        notes.append(f"patients from {layout.patient}")
    return tuple(notes)


def _is_partition(path: Path) -> bool:
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and str(content.get("format")).startswith("fedbb partition")


def _from_run(request: Request, folder: Path) -> Found:
    recipe = folder / "recipe.json"
    if not recipe.exists():
        if request.path.is_dir():
            raise DataError(f"{request.source} is not a run folder: it has no recipe.json")
        raise DataError(
            f"{request.source}: beside a partition there must be the recipe.json of its run, which "
            "names the labels; for other labels, inspect them and give this file by --partition"
        )
    return _from_recipe(request, read_recipe(recipe, _dotted(request.values)))


def _from_recipe(request: Request, recipe: Recipe) -> Found:
    recipe = _with_partition(recipe, request)
    method = check_recipe(recipe)
    federation = prepare(recipe, request.progress)
    dataset = federation.dataset
    labels = from_array(dataset.train.labels, dataset.task, dataset.classes)
    clients, owners = _client_names(federation.partition), federation.partition.owners
    column = request.layout.patient or "patient"
    people = dataset.train.columns.get(column)
    patients = None if people is None else np.unique(people, return_inverse=True)[1]
    settings = read_settings(method, recipe.local.batch_size)
    return Found(
        dataset.name,
        labels,
        ClientAssignment(clients, owners, patients),
        _settings(request.values, settings),
        recipe.data.model_dump(exclude_defaults=True),
        (*dataset.notes, *exposure_notes(recipe, method)),
    )


def read_settings(method: Method, batch_size: int) -> Settings:
    """Return the settings of a method's PNB and CBR; the paper's for the part it does not have."""
    settings, loss = Settings(batch_size=batch_size), method.loss
    if isinstance(loss, ScaledCrossEntropy):
        loss = loss.like
    if isinstance(loss, Calibrated):
        settings = replace(settings, **vars(loss.calibration))
        loss = loss.loss
    if isinstance(loss, PNB):
        settings = replace(settings, **vars(loss))
    if isinstance(method.weighting, ClientBalanced):
        settings = replace(settings, gamma=method.weighting.gamma, reading=method.weighting.reading)
    return settings


def _with_partition(recipe: Recipe, request: Request) -> Recipe:
    if request.partition is not None:
        partition: dict[str, Any] | None = {"kind": "file", "path": str(request.partition)}
    else:
        partition = _partition_values(request, request.layout.clients)
    if partition is None:
        if recipe.data.partition != Rule():
            return recipe
        partition = {"kind": "even", "clients": 1}
    # Central training takes no partition; to an inspection it is a federation of one.
    values = {**recipe.model_dump(), "engine": "inline"}
    values["data"]["partition"] = partition
    return make_recipe(values)


def _dotted(values: Sequence[str]) -> list[str]:
    """Return the settings that belong to a recipe, such as data.long_tail=0.1."""
    return [value for value in values if "." in value.partition("=")[0]]


def _settings(values: Sequence[str], settings: Settings) -> Settings:
    """Put settings such as beta=0.999 into those of the inspection."""
    plain = [value for value in values if "." not in value.partition("=")[0]]
    given = read_values(plain)
    known = [field.name for field in fields(Settings)]
    for key in given:
        if key not in known:
            raise RecipeError(f"--set {key} is unknown" + nearest(key, known))
    try:
        return TypeAdapter(Settings).validate_python({**vars(settings), **given})
    except ValidationError as error:
        first = error.errors()[0]
        # An error of the whole record has no place; its message names the setting by itself.
        reason = (
            explain_validation_error(error, Settings) if first["loc"] else first["ctx"]["error"]
        )
        raise RecipeError(f"--set: {reason}") from error
