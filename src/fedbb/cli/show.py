"""`fedbb show`: what a run folder holds, in a screenful."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedbb._util.table import Table, make_table, to_rich
from fedbb.cli.common import Json, Quiet, print_json, say
from fedbb.cli.screens import COLUMNS, ending, percent
from fedbb.errors import RunError
from fedbb.evaluation.own_models import PERSONAL_SCORES, SCORES_OF
from fedbb.report.results import RunResult, read_run
from fedbb.report.score_tables import (
    class_table,
    confusion_table,
    decision_table,
    means_table,
    site_spread_table,
    site_table,
)
from fedbb.report.text import metric_title
from fedbb.runs.final_scores import ModelScores
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import FederationRecord
from fedbb.secagg.audit import AUDIT, DP, AuditFile, describe_dp

LAST = 10
"""Rounds whose scores on the clients' own test data are shown."""


def show(
    path: Annotated[Path, typer.Argument(help="A run folder.")],
    scores: Annotated[
        bool, typer.Option("--scores", help="All scores of the final model, by class.")
    ] = False,
    sites: Annotated[
        bool, typer.Option("--sites", help="Scores at each site, on its own test data.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show a run: its recipe in short, scores by class, weights by client, best and final."""
    folder, checked = RunFolder(path), read_run(path)
    recipe, federation, records = checked.recipe, checked.federation, folder.records()
    finished = folder.file("summary.json").exists()
    summary = folder.read_json("summary.json") if finished else None
    if as_json:
        parts = {"recipe": recipe.model_dump(mode="json"), "federation": federation.to_json()}
        found = {name: model.to_json() for name, model in checked.scores.items()}
        print_json(
            {**parts, "rounds": records, "summary": summary, "scores": found or None, **_dp(path)}
        )
    elif scores or sites:
        for place, table in enumerate(_details(checked, scores, sites)):
            Console().print(*([""] if place else []), to_rich(table), sep="\n")
    elif not quiet:
        console = Console()
        say(console, _heading(federation, recipe.method.name, len(records), recipe.rounds.number))
        if records and "lr" in records[-1]:
            rates = f"{records[0]['lr']:.4g} in round 1, {records[-1]['lr']:.4g} in the last"
            say(console, f"learning rate: {rates}")
        if checked.sent_bytes is not None:
            say(console, f"{_megabytes(checked.sent_bytes)} of compressed changes sent by clients")
        if records:
            console.print("", to_rich(_classes(federation, records[-1])), sep="\n")
        if records and SCORES_OF in records[-1]:
            say(console, _own_models(records[-1], recipe.evaluation.metric))
        personal = _personal(records, recipe.evaluation.metric)
        if personal is not None:
            console.print(to_rich(personal))
        if all(client.samples is not None for client in federation.clients):
            console.print("", to_rich(_clients(federation)), sep="\n")
        if spent := describe_dp(_dp(path)):
            say(console, spent)
        for note in federation.notes:
            say(console, f"note: {note}")
        if summary and "final" in checked.scores:
            _summarize(console, checked.scores["final"], summary["metric"])
        if summary:
            say(console, ending(summary, path))
        else:
            say(console, f"unfinished; continue with: fedbb run --resume {path}")


def _megabytes(sent: int) -> str:
    return f"{sent / 1e6:.2f} MB" if sent >= 10_000 else f"{sent:,} bytes"


def _dp(path: Path) -> dict[str, Any]:
    """Return the entry of differential privacy in the audit of a run, if there is one."""
    content = AuditFile.read(path).content if (path / AUDIT).exists() else {}
    return {DP: content[DP]} if DP in content else {}


def _summarize(console: Console, scores: ModelScores, metric: str) -> None:
    """Print the means of all scores, and how evenly the sites fare."""
    means = means_table(scores)
    if means is not None:
        console.print("", to_rich(means), sep="\n")
        say(console, "by class, with confusion matrix: --scores")
    spread = next((one for one in scores.site_spreads if one.metric == metric), None)
    if spread is None:
        return
    if spread.worst is None or spread.worst_tenth is None:
        further = "; a private run knows only sums over sites"
    else:
        further = (
            f", worst {percent(spread.worst)} (client {spread.worst_client}), worst tenth "
            f"{percent(spread.worst_tenth)}; all: --sites"
        )
    say(
        console,
        f"{spread.sites} sites on their own test data, {metric_title(metric)}: mean "
        f"{percent(spread.mean)}, SD {percent(spread.std)}{further}",
    )


def _details(run: RunResult, scores: bool, sites: bool) -> list[Table]:
    """Return the tables that were asked for; RunError if the run has none of them."""
    found = run.scores.get("final")
    tables: list[Table | None] = []
    if scores and found is not None:
        tables.append(means_table(found))
        if (report := found.decided) is not None:
            tables += [class_table(report, intervals=False), confusion_table(report)]
        tables.append(decision_table(found))
    if sites and found is not None:
        tables += [site_spread_table(found), site_table(found)]
    shown = [table for table in tables if table is not None]
    if not shown and sites:
        raise RunError(f"{run.path} has no scores of sites: set data.own_test in its recipe")
    if not shown:
        raise RunError(
            f"{run.path} has no such scores: it is unfinished, of an older version, or its server "
            "had no test data"
        )
    return shown


def _heading(federation: FederationRecord, method: str, done: int, rounds: int) -> str:
    scored = "".join(f", {number} {name}" for name, number in federation.scored.items())
    return (
        f"{method} on {federation.data} ({federation.task}): {federation.train} train"
        f"{scored}; {len(federation.clients)} clients; {done} of {rounds} rounds"
    )


def _classes(federation: FederationRecord, record: dict[str, Any]) -> Table:
    per_class = record["scores"]["test"]["per_class"]
    scores = [[percent(value) for value in vector] for vector in per_class.values()]
    columns = [list(federation.classes), *scores]
    head = ["class", *(COLUMNS.get(name, name) for name in per_class)]
    if federation.positives is not None:
        head.insert(1, "positives")
        columns.insert(1, [f"{number:g}" for number in federation.positives])
    caption = f"Classes after round {record['round']}, test data"
    if SCORES_OF in record:
        caption += ", mean over the clients' own models"
    return make_table(head, zip(*columns, strict=True), caption)


def _own_models(record: dict[str, Any], metric: str | None) -> str:
    """Say how the clients' own models are spread."""
    of, means = record[SCORES_OF], record["scores"]["test"]["macro"]
    name = metric or ("balanced_accuracy" if means["balanced_accuracy"] is not None else "auroc")
    never = of["clients"] - of["trained"]
    first = f"; {never} never took part and have the first model" if never else ""
    if (distance := of.get("consensus_distance")) is not None:
        first += f"; distance from their mean {distance:.4g}"
    worst = f", worst {percent(of['worst']['test'][name])}" if "worst" in of else ""
    return (
        f"{of['clients']} models of clients, {metric_title(name)}: mean {percent(means[name])}, "
        f"SD {percent(of['std']['test'][name])}{worst}{first}"
    )


def _personal(records: list[dict[str, Any]], metric: str | None) -> Table | None:
    """Return the scores on the clients' own test data during the run, of the last such rounds."""
    scored = [record for record in records if PERSONAL_SCORES in record][-LAST:]
    if not scored:
        return None
    last = scored[-1][PERSONAL_SCORES]
    kinds = [kind for kind in ("own", "shared") if kind in last]
    name = metric or ("balanced_accuracy" if "balanced_accuracy" in last["own"] else "auroc")
    rows = []
    for record in scored:
        parts = [record[PERSONAL_SCORES].get(kind, {}).get(name, {}) for kind in kinds]
        figures = [percent(part.get(key)) for part in parts for key in ("mean", "std", "worst")]
        rows.append((record["round"], *figures))
    head = [f"{kind}: {figure}" for kind in kinds for figure in ("mean", "SD", "worst")]
    which = " and the shared one" if "shared" in kinds else ""
    tested = f"on the own test data of {last['clients']} clients"
    caption = f"Own models{which} {tested}: {metric_title(name)}"
    return make_table(("round", *head), rows, caption)


def _clients(federation: FederationRecord) -> Table:
    rows = [
        (
            client.client,
            client.samples,
            None if client.dispersion is None else f"{client.dispersion:.4f}",
            f"{client.weight:.4f}",
            f"{client.weight_by_samples:.4f}",
            None if client.loss_weight is None else f"{client.loss_weight:.3f}",
        )
        for client in federation.clients
    ]
    head = ("client", "samples", "dispersion", "weight", "by samples", "loss weight")
    return make_table(head, rows, "Clients", words=0)
