"""Balanced classifiers in closed form, which can be added to any method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from fedbb.classifiers.closed_form import ClosedForm, Prior
from fedbb.classifiers.served import BalancedClassifier, SummedEmbeddings
from fedbb.errors import RecipeError
from fedbb.methods.record import Method

Shrinkage = float | Literal["oas"]
Head = Callable[[Method], Method]
"""Adds a classifier to a method."""


def lda_head(
    *,
    prior: Prior = ClosedForm.prior,
    shrinkage: Shrinkage = ClosedForm.shrinkage,
    blend: float = BalancedClassifier.blend,
    every: int = SummedEmbeddings.every,
    restart: bool = BalancedClassifier.restart,
) -> Head:
    """Linear discriminant analysis of the merged model's embeddings.

    Args:
        prior: "equal" weighs all classes alike, "federation" by their frequency.
        shrinkage: of the covariance, from 0 to 1, or "oas".
        blend: share of the closed form in the served classifier.
        every: rounds from one classifier to the next; between them the trained one is served.
        restart: whether the next round starts from the classifier.
    """
    return _head("LDA", ClosedForm("lda", prior, shrinkage), blend, every, restart)


def ridge_head(
    *,
    prior: Prior = ClosedForm.prior,
    shrinkage: Shrinkage = ClosedForm.shrinkage,
    blend: float = BalancedClassifier.blend,
    every: int = SummedEmbeddings.every,
    restart: bool = BalancedClassifier.restart,
) -> Head:
    """Ridge regression on ±1 of the merged model's embeddings.

    Args:
        prior: "equal" weighs all classes alike, "federation" by their frequency.
        shrinkage: the penalty is s/(1 − s) times the mean variance; from 0 to 0.99, or "oas".
        blend: share of the closed form in the served classifier.
        every: rounds from one classifier to the next; between them the trained one is served.
        restart: whether the next round starts from the classifier.
    """
    return _head("ridge", ClosedForm("ridge", prior, shrinkage), blend, every, restart)


def means_head(
    *,
    prior: Prior = ClosedForm.prior,
    blend: float = BalancedClassifier.blend,
    every: int = SummedEmbeddings.every,
    restart: bool = BalancedClassifier.restart,
) -> Head:
    """Nearest class mean of the merged model's embeddings.

    Args:
        prior: "equal" weighs all classes alike, "federation" by their frequency.
        blend: share of the closed form in the served classifier.
        every: rounds from one classifier to the next; between them the trained one is served.
        restart: whether the next round starts from the classifier.
    """
    return _head("means", ClosedForm("means", prior), blend, every, restart)


def _head(title: str, closed_form: ClosedForm, blend: float, every: int, restart: bool) -> Head:
    statistic = SummedEmbeddings(every)
    step = BalancedClassifier(closed_form, blend, restart)

    def add(method: Method) -> Method:
        name = f"{method.name}+{title}"
        rivals = [type(part).__name__ for part in method.server if part.sets_classifier]
        if rivals:
            raise RecipeError(f"{name} would serve two classifiers, {rivals[0]}'s and its own")
        return replace(
            method,
            name=name,
            statistics=(*method.statistics, statistic),
            server=(*method.server, step),
        )

    return add


HEADS: dict[str, Callable[..., Head]] = {
    "lda-head": lda_head,
    "ridge-head": ridge_head,
    "means-head": means_head,
}
