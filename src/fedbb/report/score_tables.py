"""All scores of a run's model as tables: means, classes, confusion, operating point, sites."""

from __future__ import annotations

import math

from fedbb._util.table import UNDEFINED, Cell, Entry, Table, make_table, number_cell
from fedbb._util.text import counted
from fedbb.evaluation.score_report import ScoreInterval, ScoreReport
from fedbb.evaluation.sites import SiteSpread
from fedbb.report.text import metric_title
from fedbb.runs.final_scores import ModelScores

SHORT_TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "recall": "recall",
    "specificity": "specificity",
    "precision": "precision",
    "f1": "F1",
    "auroc": "AUROC",
    "average_precision": "avg. prec.",
    "brier": "Brier",
    "ece": "ECE",
}
BRIEF_TITLES = {
    **SHORT_TITLES,
    "specificity": "spec.",
    "precision": "prec.",
    "average_precision": "AP",
}
BRIEF_NOTE = "spec.: specificity; prec.: precision; AP: average precision"
"""Titles with which a table by class fits into 80 columns."""

AS_NUMBERS = ("brier", "ece", "top_label_ece")
"""Errors, which are given as they are; all other figures are given in points."""

MOST_CLASSES = 25
"""Classes up to which a confusion matrix is shown."""

FEW = "*"


def figure_text(name: str, value: float, ends: ScoreInterval | None = None) -> str:
    """Return a figure, in points unless it is an error, with the ends of its interval.

    >>> figure_text("f1", 0.8123, ScoreInterval(0.75, 0.88))
    '81.2 [75.0, 88.0]'
    """
    if math.isnan(value):
        return UNDEFINED
    scale, decimals = (1, 3) if name in AS_NUMBERS else (100, 1)
    text = f"{scale * value:.{decimals}f}"
    if ends is None or math.isnan(ends.low):
        return text
    return f"{text} [{scale * ends.low:.{decimals}f}, {scale * ends.high:.{decimals}f}]"


def _cell(name: str, value: float, ends: ScoreInterval | None = None) -> Cell:
    return number_cell(value, figure_text(name, value, ends))


def means_table(scores: ModelScores) -> Table | None:
    """Return the means over classes with their intervals; None if there are no scores.

    If some figure is undefined for a class, a column says of how many classes a mean is.
    """
    plain = scores.test
    if plain is None:
        return None
    decided = None if scores.operating_point is None else scores.operating_point.scores
    partly = any(number < len(plain.classes) for number in plain.defined.values())
    rows = []
    for name, value in plain.macro.items():
        if name == "recall" and plain.macro["balanced_accuracy"] == value:
            continue  # the same figure under another name
        ends = None if plain.intervals is None else plain.intervals.macro.get(name)
        row: list[Entry] = [metric_title(name), _cell(name, value, ends)]
        if plain.few:
            row.append(_cell(name, plain.macro_min_cases[name]))
        if decided is not None:
            ends = None if decided.intervals is None else decided.intervals.macro.get(name)
            row.append(_cell(name, decided.macro[name], ends))
        rows.append([*row, plain.defined[name]] if partly else row)
    head = ["score", "all classes"]
    head += [f"≥ {plain.min_cases} cases"] if plain.few else []
    head += ["operating point"] if decided is not None else []
    head += ["classes"] if partly else []
    caption = f"Model after round {scores.round}, {counted(plain.samples, 'test sample')}"
    return make_table(head, rows, caption, note=means_note(plain))


def means_note(report: ScoreReport) -> str:
    """Return what the figures of a report mean, in a few sentences."""
    parts = ["Shares are in points, of which 100 are perfect; of Brier score and ECE 0 is perfect."]
    found = report.intervals
    if found is not None:
        drawn = "samples" if found.groups is None else f"{found.groups:,} groups, such as patients"
        parts.append(
            f"In brackets: 95 % intervals by {found.replicates:,} bootstrap draws of {drawn}."
        )
    if report.few:
        parts.append(f"Fewer than {report.min_cases} cases: {', '.join(report.few)}.")
    return " ".join(parts)


def class_table(report: ScoreReport, *, intervals: bool = True) -> Table:
    """Return the figures of each class with its support; few cases are marked by a star.

    Without intervals it is made for a terminal, and its titles are brief.
    """
    ends = report.intervals.per_class if intervals and report.intervals is not None else {}
    rows: list[tuple[Entry, ...]] = []
    for place, name in enumerate(report.classes):
        few = FEW if report.positives[place] < report.min_cases else ""
        cells = []
        for figure, values in report.per_class.items():
            pair = ScoreInterval(*ends[figure][:, place].tolist()) if figure in ends else None
            cells.append(_cell(figure, float(values[place]), pair))
        rows.append((name + few, int(report.positives[place]), *cells))
    titles = SHORT_TITLES if intervals else BRIEF_TITLES
    head = ("class", "cases", *(titles[figure] for figure in report.per_class))
    notes = [f"{FEW} fewer than {report.min_cases} cases"] if report.few else []
    note = "; ".join(notes if intervals else [*notes, BRIEF_NOTE])
    return make_table(head, rows, "Scores of classes, test data", note=note)


def confusion_table(report: ScoreReport) -> Table | None:
    """Return the confusion matrix; None for many classes that exclude each other."""
    if report.confusion.ndim == 3:
        rows: list[tuple[Entry, ...]] = [
            (name, *(int(cells[place]) for place in ((1, 1), (1, 0), (0, 1), (0, 0))))
            for name, cells in zip(report.classes, report.confusion, strict=True)
        ]
        head = ("class", "true positives", "false negatives", "false positives", "true negatives")
        return make_table(head, rows, "Decisions by class, test data")
    if not 0 < len(report.confusion) <= MOST_CLASSES:
        return None
    rows = [
        (name, *(int(value) or None for value in row))  # zeros would hide the rest
        for name, row in zip(report.classes, report.confusion, strict=True)
    ]
    note = "Row: true class. Column: predicted class."
    return make_table(("class", *report.classes), rows, "Confusion matrix", note=note)


def decision_table(scores: ModelScores) -> Table | None:
    """Return threshold and logit shift of each class; None without an operating point."""
    point = scores.operating_point
    if point is None:
        return None
    columns = {"threshold": point.thresholds, "added to the logit": point.logit_shift}
    given = {title: values for title, values in columns.items() if values is not None}
    rows = [
        (name, *(f"{values[place]:.3f}" for values in given.values()))
        for place, name in enumerate(point.classes)
    ]
    return make_table(("class", *given), rows, "Operating point of the model")


def site_table(scores: ModelScores) -> Table | None:
    """Return the scores of the shared model at each site, as it decides; None without any."""
    sites = scores.decided_sites
    if not sites:
        return None
    rows: list[tuple[Entry, ...]] = [
        (
            site.client,
            site.samples,
            site.classes,
            *(_cell(name, value) for name, value in site.macro.items()),
        )
        for site in sites
    ]
    head = ("client", "test samples", "classes", *(SHORT_TITLES[name] for name in sites[0].macro))
    caption = "Scores at each site, on its own test data" + _where_decided(scores)
    return make_table(head, rows, caption, words=0)


def _where_decided(scores: ModelScores) -> str:
    return "" if scores.decided_sites is scores.sites else ", at the operating point"


def site_spread_table(scores: ModelScores) -> Table | None:
    """Return how evenly each metric is spread over the sites; None without any."""
    rows: list[tuple[Entry, ...]] = [
        (
            metric_title(spread.metric),
            _cell(spread.metric, spread.mean),
            _cell(spread.metric, spread.std),
            *_worst(spread),
            spread.sites,
        )
        for spread in scores.site_spreads
    ]
    head = ("score", "mean", "SD", "worst site", "its client", "worst tenth", "sites")
    caption = "Fairness over sites, each on its own test data" + _where_decided(scores)
    note = "Worst tenth: mean of the lowest tenth of the sites, at least one."
    if scores.site_sums:
        note = "A private run: only sums over sites are known, and no site's own scores."
    return make_table(head, rows, caption, note=note) if rows else None


def _worst(spread: SiteSpread) -> tuple[Entry, Entry, Entry]:
    """Return the worst site, its client and the worst tenth, as far as they are known."""
    if spread.worst is None or spread.worst_tenth is None:
        return None, None, None
    worst, tenth = (_cell(spread.metric, value) for value in (spread.worst, spread.worst_tenth))
    return worst, spread.worst_client, tenth


def all_tables(scores: ModelScores) -> list[Table]:
    """Return everything that is known of a model, in the order of reading."""
    tables: list[Table | None] = [means_table(scores)]
    if scores.decided is not None:
        tables += [class_table(scores.decided), confusion_table(scores.decided)]
    tables += [decision_table(scores), site_spread_table(scores), site_table(scores)]
    return [table for table in tables if table is not None]
