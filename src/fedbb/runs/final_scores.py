"""The scores of a run's final and best model in full, and the operating points they decide at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.errors import RecipeError, RunError
from fedbb.evaluation.metrics import score_logits
from fedbb.evaluation.operating_point import (
    ThresholdRule,
    choose_thresholds,
    decision_shift,
    logit_shift,
)
from fedbb.evaluation.score_report import Bootstrap, ScoreReport, probabilities_of, score_model
from fedbb.evaluation.sites import SiteScores, SiteSpread, read_sites, spreads_over_sites
from fedbb.recipes.spec import EvaluationSpec, Recipe
from fedbb.records import FloatArray, IntArray, LabelCounts, Task
from fedbb.runs.federation import OWN_TEST, Federation, group_column
from fedbb.runs.folder import SCORES, RunFolder

Floats = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class OperatingPoint:
    """How a model decides otherwise than by its plain outputs, and its scores on test data then.

    Attributes:
        classes: Names of the classes.
        thresholds: Probability above which each class is predicted; None for one half.
        logit_shift: What is added to the logits of each class; None for nothing.
        scores: The scores of the model that decides so; None if the server has no test data.
        sites: Its scores on each client's own test data, if clients keep some.
    """

    classes: tuple[str, ...]
    thresholds: Floats | None
    logit_shift: Floats | None
    scores: ScoreReport | None
    sites: tuple[SiteScores, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        return {
            "classes": list(self.classes),
            "thresholds": self.thresholds,
            "logit_shift": self.logit_shift,
            "scores": None if self.scores is None else self.scores.to_json(),
            "sites": [site.to_json() for site in self.sites],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> OperatingPoint:
        """Return what `to_json` was given; KeyError, TypeError or ValueError if it is damaged."""
        scores = plain["scores"]
        # Older versions wrote neither classes nor sites.
        classes = plain["classes"] if "classes" in plain else scores["classes"]
        return cls(
            tuple(str(name) for name in classes),
            _floats(plain["thresholds"]),
            _floats(plain["logit_shift"]),
            None if scores is None else ScoreReport.from_json(scores),
            read_sites(plain.get("sites", [])),
        )

    @property
    def decision(self) -> dict[str, Floats]:
        """What the description of a model holds of it."""
        both = {"thresholds": self.thresholds, "logit_shift": self.logit_shift}
        return {name: values for name, values in both.items() if values is not None}


@dataclass(frozen=True, eq=False)
class ModelScores:
    """All scores of one model of a run.

    Attributes:
        round: The round after which it is.
        test: Scores of its plain outputs on test data; None if the server has none.
        operating_point: Thresholds and adjustment, with the scores at them; None if it has none.
        sites: Scores of its plain outputs on each client's own test data, if clients keep some.
            Those at the operating point are in `operating_point`.
        site_sums: Mean and deviation over the clients, all that a private run knows of them.
    """

    round: int
    test: ScoreReport | None
    operating_point: OperatingPoint | None = None
    sites: tuple[SiteScores, ...] = ()
    site_sums: tuple[SiteSpread, ...] = ()

    @property
    def site_spreads(self) -> tuple[SiteSpread, ...]:
        """How evenly each metric is spread over the clients' own test data."""
        return self.site_sums or spreads_over_sites(self.decided_sites)

    @property
    def decided(self) -> ScoreReport | None:
        """Scores of the model as `load_model` returns it: at its operating point if it has one."""
        return self.test if self.operating_point is None else self.operating_point.scores

    @property
    def decided_sites(self) -> tuple[SiteScores, ...]:
        """Scores of that model on each client's own test data."""
        point = self.operating_point
        return point.sites if point is not None and point.sites else self.sites

    @property
    def decision(self) -> dict[str, Floats]:
        """What the description of the model holds of its operating point."""
        return {} if self.operating_point is None else self.operating_point.decision

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        point = self.operating_point
        return {
            "round": self.round,
            "test": None if self.test is None else self.test.to_json(),
            "operating_point": None if point is None else point.to_json(),
            "sites": [site.to_json() for site in self.sites],
            **({"site_sums": [s.to_json() for s in self.site_sums]} if self.site_sums else {}),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ModelScores:
        """Return what `to_json` was given; KeyError, TypeError or ValueError if it is damaged."""
        test, point = plain["test"], plain["operating_point"]
        return cls(
            round=int(plain["round"]),
            test=None if test is None else ScoreReport.from_json(test),
            operating_point=None if point is None else OperatingPoint.from_json(point),
            sites=read_sites(plain["sites"]),
            site_sums=tuple(SiteSpread.from_json(one) for one in plain.get("site_sums", ())),
        )


def _floats(values: Sequence[float] | None) -> Floats | None:
    return None if values is None else tuple(1.0 * value for value in values)


def read_scores(folder: RunFolder) -> dict[str, ModelScores]:
    """Return the scores of the "final" and, unless its file was removed, the "best" model.

    They are empty in unfinished runs, in folders of older versions, and where the server of a run
    on Flower has no data.

    Raises:
        RunError: The file is damaged.
    """
    if not folder.file(SCORES).exists():
        return {}
    plain = folder.read_json(SCORES)
    try:
        names = [name for name in ("final", "best") if name == "final" or name in plain]
        return {name: ModelScores.from_json(plain[name]) for name in names}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(f"{SCORES} is damaged: {error!r}") from error


def check_evaluation(recipe: Recipe, federation: Federation) -> None:
    """Refuse settings of `evaluation` that this data does not allow.

    Raises:
        RecipeError: A threshold without validation data, or for more than two classes.
    """
    if recipe.evaluation.threshold is None:
        return
    if "validation" not in federation.scored:
        raise RecipeError(
            "evaluation.threshold needs validation data, as data.validation = 0.1 holds it out: "
            "scores on test data that a threshold was chosen on would be too high"
        )
    check_threshold_classes(federation.dataset.task, len(federation.dataset.classes))


def check_threshold_classes(task: Task, classes: int) -> None:
    """Refuse thresholds for classes of which one is predicted; RecipeError."""
    if task is Task.MULTICLASS and classes != 2:
        raise RecipeError(
            "evaluation.threshold is for multi-label data and for two classes; of "
            f"{classes} classes the most probable is predicted"
        )


@dataclass(frozen=True, eq=False)
class FinalScorer:
    """What the scores of a model need besides its logits; it holds labels, not examples.

    Attributes:
        settings: The section `evaluation` of the recipe.
        seed: Seed of the bootstrap.
        task: Multi-class or multi-label.
        classes: Names of the classes.
        labels: Labels by the name of the examples.
        groups: Group, such as the patient, of each test example, if it is known.
        owners: The client of each example of its own test data.
        counts: Label counts of all clients in sum, for the adjustment.
    """

    settings: EvaluationSpec
    seed: int
    task: Task
    classes: tuple[str, ...]
    labels: Mapping[str, npt.NDArray[Any]]
    groups: npt.NDArray[Any] | None = None
    owners: IntArray | None = None
    counts: LabelCounts | None = None

    @classmethod
    def of(cls, recipe: Recipe, federation: Federation) -> FinalScorer:
        """Return the scorer of a run."""
        test, own = federation.scored["test"], federation.own_test
        labels = {name: part.labels for name, part in federation.scored.items()}
        column = group_column(recipe.data, test)
        return cls(
            settings=recipe.evaluation,
            seed=recipe.seed,
            task=federation.dataset.task,
            classes=federation.dataset.classes,
            labels=labels if own is None else {**labels, OWN_TEST: own.examples.labels},
            groups=None if column is None else test.columns[column],
            owners=None if own is None else own.owners,
        )

    def with_counts(self, measured: Mapping[str, IntArray]) -> FinalScorer:
        """Return the scorer with the label counts of all clients in sum, if it adjusts logits."""
        if not self.settings.logit_adjustment:
            return self
        positive, negative = measured[FederationCounts.name].astype(np.float64)
        samples = int((positive + negative).max())
        return replace(self, counts=LabelCounts(positive, negative, samples))

    def __call__(self, number: int, logits: Mapping[str, FloatArray]) -> ModelScores:
        """Return the scores of the model of a round, by its logits (N, C) of all examples."""
        return ModelScores(
            round=number,
            test=self._report(logits["test"]),
            operating_point=self._operating_point(logits),
            sites=self._sites(logits),
        )

    def _report(self, logits: FloatArray, thresholds: FloatArray | None = None) -> ScoreReport:
        return score_model(
            logits,
            self.labels["test"],
            self.task,
            self.classes,
            thresholds=thresholds,
            min_cases=self.settings.min_cases,
            bootstrap=Bootstrap(self.settings.bootstrap, self.seed, self.groups),
        )

    def _operating_point(self, logits: Mapping[str, FloatArray]) -> OperatingPoint | None:
        shift = thresholds = None
        if self.counts is not None:
            strength = float(self.settings.logit_adjustment)
            shift = logit_shift(self.counts, self.task, strength)
            logits = {name: values + shift for name, values in logits.items()}
        if (rule := threshold_rule(self.settings)) is not None:
            chances = probabilities_of(logits["validation"], self.task)
            thresholds = choose_thresholds(self.labels["validation"], chances, rule)
        if shift is None and thresholds is None:
            return None
        limits = None if thresholds is None else tuple(thresholds.tolist())
        return OperatingPoint(
            self.classes,
            limits,
            None if shift is None else tuple(shift.tolist()),
            self._report(logits["test"], thresholds),
            self._sites(logits, decision_shift(self.task, limits, None, len(self.classes))),
        )

    def _sites(
        self, logits: Mapping[str, FloatArray], shift: FloatArray | float = 0.0
    ) -> tuple[SiteScores, ...]:
        if self.owners is None:
            return ()
        found = []
        for client in np.unique(self.owners).tolist():
            rows = self.owners == client
            own, labels = logits[OWN_TEST][rows] + shift, self.labels[OWN_TEST][rows]
            scores = score_logits(own, labels, self.task)
            found.append(SiteScores.of(client, scores))
        return tuple(found)


def threshold_rule(settings: EvaluationSpec) -> ThresholdRule | None:
    """Return how thresholds are chosen, None if they are not."""
    rule = settings.threshold
    return rule if rule is None or isinstance(rule, str) else rule.sensitivity
