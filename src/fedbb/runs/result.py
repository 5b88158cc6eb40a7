"""What a run leaves its caller in Python: scores, the history of its rounds, and the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from fedbb._util.table import make_frame
from fedbb.recipes.spec import Recipe
from fedbb.runs.final_scores import ModelScores
from fedbb.runs.folder import Record

if TYPE_CHECKING:
    import pandas as pd

    from fedbb.inference.model import InferenceModel

Loader = Callable[[str], "InferenceModel"]
"""Returns the trained model of the "final" or of the "best" round."""


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """One round of a run.

    Attributes:
        round: Its number, from 1.
        scores: Macro scores after it, by data ("test", "validation") and metric; NaN if undefined.
        per_class: Scores of each class, by data and metric.
        clients: What is known of each client that counted: its number, weight, steps and mean
            training loss.
        absent: The chosen clients that did not count, each with the reason.
        seconds: Duration of training and scoring.
        state: The model after the round, as the state dict of the network; None in a history.
    """

    round: int
    scores: Mapping[str, Mapping[str, float]]
    per_class: Mapping[str, Mapping[str, list[float]]]
    clients: tuple[Mapping[str, Any], ...]
    absent: tuple[Mapping[str, Any], ...]
    seconds: float
    state: Mapping[str, Tensor] | None = field(default=None, repr=False)

    @property
    def train_loss(self) -> float:
        """Mean of the clients' training losses by their weights; NaN if they are unknown."""
        known = [c for c in self.clients if c["train_loss"] is not None and c["weight"]]
        total = math.fsum(client["weight"] for client in known)
        weighed = math.fsum(client["weight"] * client["train_loss"] for client in known)
        return weighed / total if total else math.nan

    @classmethod
    def from_record(cls, record: Record, state: Mapping[str, Tensor] | None = None) -> RoundRecord:
        """Return the round of a line of rounds.jsonl."""
        scores = record["scores"]
        return cls(
            round=record["round"],
            scores={name: _floats(found["macro"]) for name, found in scores.items()},
            per_class={
                name: {metric: _vector(values) for metric, values in found["per_class"].items()}
                for name, found in scores.items()
            },
            clients=tuple(record["clients"]),
            absent=tuple(record.get("absent", ())),  # the first runs of fedbb 0.1.0 lack it
            seconds=math.fsum(record["seconds"].values()),
            state=state,
        )

    def flat(self) -> dict[str, Any]:
        """Return the round as one row of a table: `test_accuracy`, `validation_f1` and so on."""
        macro = {
            f"{name}_{metric}": value
            for name, found in self.scores.items()
            for metric, value in found.items()
        }
        return {
            "round": self.round,
            **macro,
            "train_loss": self.train_loss,
            "clients": len(self.clients),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False)
class Result:
    """A run: its scores, its rounds, and its model.

    Attributes:
        recipe: The settings of the run.
        history: One record per round.
        metric: The macro metric by which the best round is chosen.
        chosen_on: The data on which it is chosen: "validation" if there is some, else "test".
        best_round: The number of the best round.
        sha256: Digest of the final model; None while the run is unfinished.
        folder: The run folder; None if nothing was written.
    """

    recipe: Recipe
    history: tuple[RoundRecord, ...]
    metric: str
    chosen_on: str
    best_round: int
    sha256: str | None
    folder: Path | None
    _load: Loader = field(repr=False)
    _scores: Mapping[str, ModelScores] = field(default_factory=dict, repr=False)

    @property
    def final(self) -> Mapping[str, float]:
        """Macro scores on test data after the last round, by metric."""
        return self.history[-1].scores["test"]

    @property
    def best(self) -> Mapping[str, float]:
        """Macro scores on test data after the best round, by metric."""
        return self.history[self.best_round - 1].scores["test"]

    @property
    def scores(self) -> ModelScores | None:
        """All scores of the final model, by class and site, with intervals and operating point.

        None in unfinished runs and in folders of older versions.
        """
        return self._scores.get("final")

    @property
    def best_scores(self) -> ModelScores | None:
        """The same of the model of the best round."""
        return self._scores.get("best")

    @property
    def model(self) -> nn.Module:
        """The network after the last round, in evaluation mode, on the CPU: logits, as trained.

        It takes what it was trained on: pixels in [0, 1], and normalized if the data set has a mean
        and a standard deviation. `predictor` takes raw inputs.
        """
        return self.predictor.network

    @property
    def best_model(self) -> nn.Module:
        """The network after the best round, likewise."""
        return self.best_predictor.network

    @cached_property
    def predictor(self) -> InferenceModel:
        """The model after the last round that takes raw inputs and returns probabilities.

        It is what `fedbb.load_model` returns of a run folder, and it holds `model`.
        """
        return self._load("final")

    @cached_property
    def best_predictor(self) -> InferenceModel:
        """The same after the best round."""
        return self._load("best")

    def to_frame(self) -> pd.DataFrame:
        """Return the history as a pandas DataFrame with a row for each round.

        Raises:
            ImportError: pandas is not installed.
        """
        return make_frame(record.flat() for record in self.history)

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.final.items())
        kept = "" if self.folder is None else f", saved in {self.folder}"
        return (
            f"<Result of {self.recipe.method.name} on {self.recipe.data.name}: "
            f"{len(self.history)} rounds, test {scores}; best round {self.best_round} by "
            f"{self.metric} on {self.chosen_on} data{kept}>"
        )


def make_result(
    recipe: Recipe,
    records: Iterable[Record],
    summary: Mapping[str, Any],
    folder: Path | None,
    load: Loader,
    scores: Mapping[str, ModelScores],
) -> Result:
    """Return the result of a run.

    Args:
        recipe: Its settings.
        records: Its rounds, as rounds.jsonl holds them.
        summary: Its summary, as summary.json holds it.
        folder: Its folder, if it has one.
        load: Returns its final or best network.
        scores: All scores of its final and its best model.
    """
    return Result(
        recipe=recipe,
        history=tuple(RoundRecord.from_record(record) for record in records),
        metric=summary["metric"],
        chosen_on=summary["best"]["chosen_on"],
        best_round=summary["best"]["round"],
        sha256=summary["sha256"],
        folder=folder,
        _load=load,
        _scores=scores,
    )


def _floats(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def _vector(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
