"""A model card in Markdown: what a model was trained on, how well it does, and its limits.

The sections follow Mitchell et al., "Model Cards for Model Reporting" (2019).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbb._util.table import UNDEFINED, Entry, escape_markdown, make_table, to_markdown
from fedbb.errors import RunError
from fedbb.evaluation.metrics import Scores, is_collapsed
from fedbb.inference.model import read_info
from fedbb.records import LabelCounts, Task
from fedbb.report.results import RunResult, read_run, summary_of
from fedbb.report.score_tables import all_tables
from fedbb.report.statistics import Interval, auroc_interval, wilson_interval
from fedbb.report.text import metric_title
from fedbb.runs.final_scores import ModelScores
from fedbb.runs.model_info import ModelInfo
from fedbb.secagg.audit import read_dp

FEW_CASES = 30
"""Test cases of a class below which the card warns that its scores say little."""

TO_FILL = "_to be filled in_"


@dataclass(frozen=True)
class CardFields:
    """What only the people behind a model can say; a field that is None is left to be filled in.

    Args:
        license: Licence of the model, such as "apache-2.0".
        data_license: Licence or terms of use of the training data.
        contact: Whom to ask.
        intended_use: What the model is meant for.
    """

    license: str | None = None
    data_license: str | None = None
    contact: str | None = None
    intended_use: str | None = None


def model_card(path: Path, fields: CardFields | None = None, *, best: bool = False) -> str:
    """Return the model card of a finished run, in Markdown.

    Args:
        path: The run folder.
        fields: What the folder does not know.
        best: Whether the card is of the best round's model instead of the final one.

    Raises:
        RunError: The folder holds no finished run, or one of an older version.
    """
    run = read_run(path)
    if run.summary is None:
        raise RunError(f"{path} is unfinished; continue with: fedbb run --resume {path}")
    file = path / ("best.safetensors" if best else "final.safetensors")
    if best and not file.exists():
        raise RunError(
            f"{path} has no {file.name}: it was removed, or clients have models of their own, of "
            "which only the last are kept"
        )
    card = _Card(run, read_info(file), file, best)
    return "\n".join([*card.lines(fields or CardFields())]) + "\n"


@dataclass(frozen=True, eq=False)
class _Card:
    run: RunResult
    info: ModelInfo
    file: Path
    best: bool

    @property
    def scores(self) -> Scores:
        summary = summary_of(self.run)
        return (summary.best if self.best else summary.final).scores["test"]

    @property
    def cases(self) -> LabelCounts | None:
        return self.run.federation.scored_cases.get("test")

    def lines(self, fields: CardFields) -> Iterator[str]:
        name = escape_markdown(self.run.path.resolve().name)
        yield from _front_matter(fields, self.run.federation.data)
        yield from (f"# Model card: {name}", "")
        yield from self._model(fields)
        yield from ("## Intended use", "", fields.intended_use or TO_FILL, "")
        yield from self._data(fields)
        yield from self._training()
        yield from self._evaluation()
        yield from ("## Limits", "", *(f"- {limit}" for limit in self._limits()), "")
        yield from self._loading()

    def _model(self, fields: CardFields) -> Iterator[str]:
        info, summary = self.info, summary_of(self.run)
        number = (summary.best if self.best else summary.final).number
        normalized = "normalized per channel" if info.mean else "not normalized"
        facts = {
            "Network": _code(info.network) + (f" {_options(info.options)}" if info.options else ""),
            "Task": "multi-class" if Task(info.task) is Task.MULTICLASS else "multi-label",
            "Classes": f"{len(info.classes)}: " + escape_markdown(", ".join(info.classes)),
            "Input": f"{' × '.join(map(str, info.input_shape))} {info.input_dtype}, {normalized}",
            "Model": f"{'best' if self.best else 'final'} model, after round {number}"
            + (f"; every client has {info.unshared} for itself" if info.unshared else ""),
            "File": _code(self.file.name),
            "SHA-256 of the final weights": _code(summary.sha256),
            "Made with": f"fedbb {info.version}",
            "Licence": fields.license or TO_FILL,
            "Contact": fields.contact or TO_FILL,
        }
        yield from ("## Model", "", *_list(facts), "")

    def _data(self, fields: CardFields) -> Iterator[str]:
        facts = self.run.federation
        sizes = sorted(client.samples for client in facts.known)
        clients = str(len(facts.clients))
        if sizes:
            middle = statistics.median(sizes)
            clients += f", with {sizes[0]:,} to {sizes[-1]:,} samples (median {middle:,.0f})"
        partition = self.info.recipe.get("data", {}).get("partition", {})
        listed = {
            "Data": escape_markdown(facts.data),
            "Training samples": f"{facts.train:,}",
            "Clients": clients,
            "Partition": _options({k: v for k, v in partition.items() if v is not None}),
            "Licence of the data": fields.data_license or TO_FILL,
        }
        yield from ("## Training data", "", *_list(listed), "")
        if not any(math.isnan(value) for value in facts.class_counts):
            rows = [
                (name, f"{count:,.0f}", *_held(self.run, place))
                for place, (name, count) in enumerate(
                    zip(facts.classes, facts.class_counts, strict=True)
                )
            ]
            yield to_markdown(make_table(["class", "training cases", "clients with cases"], rows))

    def _training(self) -> Iterator[str]:
        recipe = self.info.recipe
        method = recipe.get("method", {})
        facts = {
            "Method": f"{escape_markdown(self.info.method)}, {_options(method.get('options', {}))}",
            "Rounds": str(summary_of(self.run).final.number),
            "Local training": _options(_differing(recipe.get("local", {}))),
            "Seed": str(recipe.get("seed", UNDEFINED)),
            "Secure aggregation": str(recipe.get("privacy", "none")),
        }
        if (spent := read_dp(self.run.path)) is not None:
            facts["Privacy loss"] = escape_markdown(spent)
        yield from ("## Training", "", *_list(facts), "")

    def _evaluation(self) -> Iterator[str]:
        scores, cases = self.scores, self.cases
        yield from ("## Evaluation", "")
        yield (
            f"On {scores.samples:,} test samples. Intervals are at 95 %: Wilson's for accuracy "
            "and recall, Hanley and McNeil's for AUROC. They describe the choice of test samples, "
            "not the spread over training seeds."
        )
        yield ""
        if self.info.unshared:
            yield (
                f"The scores are means over the {len(self.run.federation.clients)} clients' own "
                "models. The intervals are those of one model.\n"
            )
        rows: list[tuple[Entry, ...]] = []
        for name, value in scores.macro.items():
            interval = self._accuracy_interval() if name == "accuracy" else None
            rows.append((metric_title(name), _percent(value, interval)))
        yield to_markdown(make_table(["score", "test data, %"], rows))
        rows = [self._class_row(place, cases) for place in range(len(self.info.classes))]
        head = ["class", "test cases", "recall, %", "F1, %", "AUROC, %", "average precision, %"]
        yield to_markdown(make_table(head, rows))
        found = self.run.scores.get("best" if self.best else "final")
        if found is not None:
            yield from _full_scores(found)

    def _accuracy_interval(self) -> Interval | None:
        # The labels of one multi-label sample are not independent cases.
        if Task(self.info.task) is Task.MULTILABEL:
            return None
        return wilson_interval(self.scores.macro["accuracy"], self.scores.samples)

    def _class_row(self, place: int, cases: LabelCounts | None) -> tuple[Entry, ...]:
        one = {name: float(values[place]) for name, values in self.scores.per_class.items()}
        recall = auroc = None
        if cases is not None:
            positive, negative = float(cases.positive[place]), float(cases.negative[place])
            recall = wilson_interval(one["recall"], positive)
            auroc = auroc_interval(one["auroc"], positive, negative)
        return (
            self.info.classes[place],
            UNDEFINED if cases is None else f"{cases.positive[place]:,.0f}",
            _percent(one["recall"], recall),
            _percent(one["f1"]),
            _percent(one["auroc"], auroc),
            _percent(one["average_precision"]),
        )

    def _limits(self) -> Iterator[str]:
        cases = self.cases
        if cases is not None:
            few = [
                f"{name} ({count:,.0f})"
                for name, count in zip(self.info.classes, cases.positive, strict=True)
                if count < FEW_CASES
            ]
            if few:
                yield (
                    f"Fewer than {FEW_CASES} test cases of: {escape_markdown(', '.join(few))}. "
                    "Their scores say little."
                )
        missed = [
            name
            for name, recall in zip(self.info.classes, self.scores.per_class["recall"], strict=True)
            if recall == 0
        ]
        if missed:
            yield f"No test case was recognized of: {escape_markdown(', '.join(missed))}."
        if self.best and summary_of(self.run).chosen_on == "test":
            yield "The round was chosen by the test data, so the scores above are too high."
        if is_collapsed({k: v.tolist() for k, v in self.scores.per_class.items()}):
            yield "The model gives every sample the same scores: it is useless."
        yield "One training seed; other seeds give other scores."
        yield "Before the model is used elsewhere, validate it there (`fedbb predict`)."
        yield from map(escape_markdown, self.run.federation.notes)

    def _loading(self) -> Iterator[str]:
        yield from (
            "## Use",
            "",
            "```python",
            "import fedbb",
            "",
            f'model = fedbb.load_model("{self.run.path.name}", client=0)'
            if self.info.unshared
            else f'model = fedbb.load_model("{self.file.name}")',
            "probabilities = model.predict(inputs)  # raw inputs, shape (N, …)",
            "```",
        )


def _full_scores(scores: ModelScores) -> Iterator[str]:
    """Yield all scores of the model, folded where a viewer can fold."""
    if scores.operating_point is not None:
        yield (
            "The model decides at the operating point below, which these two tables do not use; "
            "`fedbb.load_model` and `fedbb predict` do.\n"
        )
    yield "<details><summary>All scores, with bootstrap intervals</summary>\n"
    for table in all_tables(scores):
        yield f"**{table.caption}**\n"
        yield to_markdown(replace(table, caption="", note=""))
        if table.note:
            yield f"{escape_markdown(table.note)}\n"
    yield "</details>\n"


def _front_matter(fields: CardFields, data: str) -> Iterator[str]:
    """Yield the YAML head that model hubs read; JSON texts are valid YAML."""
    yield "---"
    if fields.license is not None:
        yield f"license: {json.dumps(fields.license)}"
    yield "library_name: fedbb"
    yield f"datasets: [{json.dumps(data, ensure_ascii=False)}]"
    yield "tags: [federated-learning, imbalanced-data]"
    yield "---"
    yield ""


def _held(run: RunResult, place: int) -> tuple[str]:
    holding = sum(client.positives[place] > 0 for client in run.federation.known)
    return (f"{holding} of {len(run.federation.clients)}",)


def _list(facts: Mapping[str, str]) -> Iterator[str]:
    return (f"- **{name}**: {value}" for name, value in facts.items())


def _options(options: Mapping[str, Any]) -> str:
    if not options:
        return "default options"
    return _code(", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items()))


def _differing(local: Mapping[str, Any]) -> dict[str, Any]:
    shown = ("epochs", "batch_size", "lr", "momentum", "weight_decay", "optimizer")
    return {key: local[key] for key in shown if key in local}


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"


def _percent(value: float, interval: Interval | None = None) -> str:
    if math.isnan(value):
        return UNDEFINED
    text = f"{100 * value:.1f}"
    if interval is None or math.isnan(interval.low):
        return text
    return f"{text} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"
