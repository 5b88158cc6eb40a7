"""The tables of a report page: scores, differences, fairness and runs, with numbers to sort by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedbb._util.table import UNDEFINED, Cell, Column, Entry, Table, make_table, number_cell
from fedbb.recipes.privacy import OWN_MODELS
from fedbb.records import FloatArray
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.method_comparison import MethodComparison, MethodDifference, MethodScore
from fedbb.report.results import RunResult, class_counts, score_on_test, summary_of
from fedbb.report.score_tables import AS_NUMBERS, SHORT_TITLES
from fedbb.report.statistics import Spread, head_and_tail, spread_columns, spread_of
from fedbb.report.text import interval_text, metric_title, score_text, signed, spread_text
from fedbb.runs.final_scores import ModelScores

BLANK = Cell(UNDEFINED)


def report_tables(parts: Sequence[MethodComparison]) -> dict[str, Table]:
    """Return the tables of a report by name; those without rows are left out.

    A reader can filter each of them by its columns `data` and `method`.
    """
    tables = {
        "final": final_scores(parts),
        "differences": differences(parts),
        "fairness": fairness_table(parts),
        "sites": sites_table(parts),
        "full": full_scores(parts),
        "best": best_scores(parts),
        "runs": run_table(parts),
    }
    return {name: table for name, table in tables.items() if table.rows}


def final_scores(parts: Sequence[MethodComparison]) -> Table:
    """Return the scores after the last round, and what a run cost."""
    head, rows = _score_rows(parts, lambda row: row.final)
    costs = [
        _count(spread_of(run.seconds for run in method.runs).mean)
        for part in parts
        for method in part.comparison.methods
    ]
    rows = [(*row, cost) for row, cost in zip(rows, costs, strict=True)]
    caption = "Test scores after the last round"
    note = _own_models(parts)
    return make_table((*head, "seconds per run"), rows, caption, words=2, note=note)


def _own_models(parts: Sequence[MethodComparison]) -> str:
    """Say which methods have no model for all, so that their scores are means over clients."""
    found = [
        method.label
        for part in parts
        for method in part.comparison.methods
        if any(note.startswith(OWN_MODELS) for run in method.runs for note in run.federation.notes)
    ]
    if not found:
        return ""
    return f"Means over the clients' own models, for want of a model for all: {', '.join(found)}."


def best_scores(parts: Sequence[MethodComparison]) -> Table:
    """Return the scores of each run's best round, with the data it was chosen on."""
    head, rows = _score_rows(parts, lambda row: row.best)
    chosen = [
        part.rows[0].chosen_on if part.rows else ""
        for part in parts
        for _ in part.comparison.methods
    ]
    rows = [(*row, where) for row, where in zip(rows, chosen, strict=True)]
    note = "A best round that is chosen on test data overestimates the score."
    caption = "Test scores of each run's best round"
    head = (*head, Column("chosen on"))
    return make_table(head, rows, caption, words=2, note=note if "test" in chosen else "")


def differences(parts: Sequence[MethodComparison]) -> Table:
    """Return paired differences against FedAvg and the control, one row for each metric."""
    rows = [_difference_row(item) for part in parts for item in part.differences]
    head = ("data", "method", "compared with", "metric", Column("difference", "right", "points"))
    caption = "Paired differences after the last round"
    note = "Seeds that agree: those whose difference has the sign of the mean."
    rest = ("95 % interval", Column("verdict"), "seeds that agree")
    return make_table((*head, *rest), rows, caption, words=4, note=note)


def _difference_row(item: MethodDifference) -> tuple[Entry, ...]:
    paired = item.paired
    mean, low, number = 100 * paired.spread.mean, 100 * paired.interval.low, len(paired.seeds)
    agreeing = paired.behind if mean < 0 else paired.ahead
    return (
        *(item.data, item.method, item.against, metric_title(item.metric)),
        number_cell(mean, signed(mean)),
        number_cell(low, interval_text(paired.interval, 100)),
        str(paired.verdict),
        Cell(f"{agreeing} of {number}", agreeing / number if number else None),
    )


def fairness_table(parts: Sequence[MethodComparison]) -> Table:
    """Return how evenly each method serves classes and clients."""
    rows = tuple(
        (part.comparison.title, method.label, *_fair(fairness_of(part.comparison, method)))
        for part in parts
        for method in part.comparison.methods
    )
    head = ("data", "method", "worst class", "worst class score", "SD over classes", "head third")
    note = (
        "The score of a class is its recall, or its average precision for multi-label data. The "
        "score of a client is the mean of the class scores, weighted by the client's label "
        "distribution. SD is the standard deviation over classes, or clients, within one run."
    )
    rest = ("tail third", "worst client", "SD over clients")
    return make_table((*head, *rest), rows, "Fairness after the last round", words=3, note=note)


FULL = ("recall", "specificity", "precision", "auroc", "average_precision", "brier", "ece")


def full_scores(parts: Sequence[MethodComparison]) -> Table:
    """Return further means over classes of the final model as it decides; mean over seeds."""
    rows: list[tuple[Entry, ...]] = []
    for part, method, found in _scored(parts):
        reports = [scores.decided for scores in found if scores.decided is not None]
        if not reports:
            continue
        cells = (
            _figure_cell(name, spread_of(report.macro[name] for report in reports)) for name in FULL
        )
        enough = spread_of(report.macro_min_cases["balanced_accuracy"] for report in reports)
        adjusted = any(scores.operating_point is not None for scores in found)
        rows.append(
            (
                *(part.comparison.title, method.label, "operating point" if adjusted else "plain"),
                *cells,
                _figure_cell("balanced_accuracy", enough),
                len(reports),
            )
        )
    titles = (SHORT_TITLES[name] for name in FULL)
    head = ("data", "method", "decisions", *titles, "balanced, classes with enough cases", "seeds")
    note = (
        "Means over classes, in points but for Brier score and expected calibration error (ECE), "
        "of which 0 is best. Enough cases: at least evaluation.min_cases in the test data."
    )
    return make_table(head, rows, "Further test scores of the final model", words=3, note=note)


def sites_table(parts: Sequence[MethodComparison]) -> Table:
    """Return how evenly the final model serves the sites, measured on their own test data."""
    rows: list[tuple[Entry, ...]] = []
    for part, method, found in _scored(parts):
        metric = part.comparison.metric
        known = [one for scores in found for one in scores.site_spreads if one.metric == metric]
        if known:
            figures = ("mean", "std", "worst", "worst_tenth")
            values = ([getattr(one, key) for one in known] for key in figures)
            cells = [None if None in row else score_cell(spread_of(row)) for row in values]
            names = (part.comparison.title, method.label, metric_title(metric))
            rows.append((*names, *cells, known[0].sites, len(known)))
    head = ("data", "method", "metric", "mean", "SD over sites", "worst site", "worst tenth")
    note = (
        "Worst tenth: mean of the lowest tenth of the sites, at least one. Private runs know mean "
        "and SD only. Means over seeds."
    )
    caption = "Scores at the sites, each on its own test data"
    return make_table((*head, "sites", "seeds"), rows, caption, words=3, note=note)


def _scored(
    parts: Sequence[MethodComparison],
) -> Iterator[tuple[MethodComparison, MethodRuns, list[ModelScores]]]:
    """Yield each method with the full scores of its runs' final models."""
    for part in parts:
        for method in part.comparison.methods:
            yield part, method, [run.scores["final"] for run in method.runs if run.scores]


def _figure_cell(name: str, spread: Spread) -> Cell:
    if name not in AS_NUMBERS:
        return score_cell(spread)
    return number_cell(spread.mean, spread_text(spread, 3))


def run_table(parts: Sequence[MethodComparison]) -> Table:
    """Return every run by itself."""
    runs = [
        (run, part.comparison.title, method.label)
        for part in parts
        for method in part.comparison.methods
        for run in method.runs
    ]
    rows = tuple(_run_row(*each) for each in runs)
    if any(run.sent_bytes is not None for run, *_ in runs):
        # Methods that compress nothing send models, whose size a run does not record.
        rows = tuple((*row, _megabytes(run)) for row, (run, *_) in zip(rows, runs, strict=True))
        head = (*_RUN_HEAD, "seconds", "sent up, MB")
        return make_table(head, rows, words=3)
    return make_table((*_RUN_HEAD, "seconds"), rows, words=3)


_RUN_HEAD = ("run", "data", "method", "seed", Column("metric"), "final", "best", "best round")


def _megabytes(run: RunResult) -> Entry:
    sent = run.sent_bytes
    return None if sent is None else number_cell(sent, f"{sent / 1e6:,.2f}")


def score_cell(spread: Spread) -> Cell:
    """Return a score in points, to be sorted by its mean."""
    return number_cell(spread.mean, score_text(spread))


def _score_rows(
    parts: Sequence[MethodComparison], pick: Callable[[MethodScore], Spread]
) -> tuple[tuple[str | Column, ...], list[tuple[Entry, ...]]]:
    metrics = _metrics(parts)
    rows: list[tuple[Entry, ...]] = []
    for part in parts:
        found = {(row.method, row.metric): score_cell(pick(row)) for row in part.rows}
        for method in part.comparison.methods:
            cells = (found.get((method.label, metric), BLANK) for metric in metrics)
            rows.append((part.comparison.title, method.label, *cells, len(method.seeds)))
    return ("data", "method", *(metric_title(metric) for metric in metrics), "seeds"), rows


def _metrics(parts: Sequence[MethodComparison]) -> list[str]:
    return list(dict.fromkeys(row.metric for part in parts for row in part.rows))


def _fair(found: Fairness) -> tuple[Entry, ...]:
    spreads = (found.worst_class_score, found.class_deviation, found.head, found.tail)
    clients = (found.worst_client, found.client_deviation)
    return (found.worst_class or UNDEFINED, *map(score_cell, (*spreads, *clients)))


def _run_row(run: RunResult, title: str, label: str) -> tuple[Entry, ...]:
    summary = summary_of(run)
    final, best = (
        score_cell(spread_of([score_on_test(scored, summary.metric)]))
        for scored in (summary.final, summary.best)
    )
    return (
        *(run.path.name, title, label, run.recipe.seed, metric_title(summary.metric)),
        *(final, best, summary.best.number, _count(run.seconds)),
    )


def _count(value: float) -> Cell:
    return number_cell(value, f"{value:,.1f}")


@dataclass(frozen=True)
class Fairness:
    """Scores of the worst served, and their spread over classes and clients, over seeds.

    `head` and `tail` are the means of the most and the least frequent third of the classes.
    """

    worst_class: str
    worst_class_score: Spread
    class_deviation: Spread
    head: Spread
    tail: Spread
    worst_client: Spread
    client_deviation: Spread


def fairness_of(comparison: Comparison, part: MethodRuns) -> Fairness:
    """Return how evenly one method serves the classes and clients of a comparison."""
    scores = class_scores(comparison, part)
    clients = [client_scores(run, row) for run, row in zip(part.runs, scores, strict=True)]
    head, tail = head_and_tail(class_counts(comparison.runs))
    means, _ = spread_columns(scores)
    worst = None if np.isnan(means).all() else int(np.nanargmin(means))
    return Fairness(
        worst_class="" if worst is None else comparison.federation.classes[worst],
        worst_class_score=spread_of([] if worst is None else scores[:, worst]),
        class_deviation=spread_of(deviation(row) for row in scores),
        head=spread_of(mean(row[head]) for row in scores),
        tail=spread_of(mean(row[tail]) for row in scores),
        worst_client=spread_of(lowest(row) for row in clients),
        client_deviation=spread_of(deviation(row) for row in clients),
    )


def class_scores(comparison: Comparison, part: MethodRuns) -> FloatArray:
    """Return the final test score of each class by the class metric, (seeds, classes)."""
    metric = comparison.class_metric
    size = len(comparison.federation.classes)
    rows = [summary_of(run).final.scores["test"].per_class.get(metric) for run in part.runs]
    return np.array([np.full(size, np.nan) if row is None else row for row in rows], np.float64)


def client_scores(run: RunResult, scores: FloatArray) -> FloatArray:
    """Return each client's score: those of the classes, weighed by its own mix of labels.

    With one class a sample this is the accuracy to expect of a client whose samples of a class are
    like the test data's. Classes without a score are left out of its mix.
    """
    held = [client.positives for client in run.federation.known]
    counts = np.array(held, np.float64).reshape(len(held), len(scores))
    counts = np.where(np.isnan(scores), 0.0, counts)
    totals = counts.sum(axis=1)
    undefined = np.full(totals.shape, np.nan)
    weighed = counts @ np.nan_to_num(scores)
    return np.asarray(np.divide(weighed, totals, out=undefined, where=totals > 0))


def mean(values: FloatArray) -> float:
    """Return the mean of the defined values, NaN of none."""
    return spread_of(values).mean


def deviation(values: FloatArray) -> float:
    """Return the standard deviation of the defined values, which are all there are, NaN of none."""
    found = values[~np.isnan(values)]
    return float(found.std()) if found.size else float("nan")


def lowest(values: FloatArray) -> float:
    """Return the least of the defined values, NaN of none."""
    found = values[~np.isnan(values)]
    return float(found.min()) if found.size else float("nan")
