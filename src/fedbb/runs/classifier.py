"""A balanced classifier for a trained model, from sums of its clients' embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedbb._util.files import finite_or_none, writing
from fedbb._util.plugins import AllowedCode
from fedbb.classifiers.closed_form import LDA, ClosedForm, Prior, Rule
from fedbb.classifiers.head import Head, blend_heads, place_head, read_head
from fedbb.classifiers.sums import EmbeddingSums, add_sums, sum_embeddings
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.transforms import normalize
from fedbb.errors import RecipeError, RunError
from fedbb.evaluation.metrics import Scorer, Scores, score_logits
from fedbb.models.base import linear_classifier, run_network
from fedbb.partition.partition import Partition
from fedbb.recipes.check import method_of
from fedbb.records import IntArray, ModelState
from fedbb.runs.checkpoint import Checkpoint, load_checkpoint, read_model_metadata, save_checkpoint
from fedbb.runs.federation import prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import is_same_partition, read_run_recipe
from fedbb.runs.runner import DEFAULT_METRIC
from fedbb.runs.runtime import network_of
from fedbb.state import restore, snapshot
from fedbb.training.threads import threads

Blend = float | Literal["validation"]

BLENDS = tuple(step / 10 for step in range(11))
"""The shares that are compared on validation data."""

BATCH = 256


@dataclass(frozen=True, eq=False)
class Refit:
    """A finished run with another classifier.

    Attributes:
        blend: The share of the closed form in the new classifier.
        trained: Scores of the run's final model as trained, by data ("test", "validation").
        fitted: Scores of the same model with the new classifier.
        state: That model.
    """

    blend: float
    trained: Mapping[str, Scores]
    fitted: Mapping[str, Scores]
    state: ModelState

    def as_json(self) -> dict[str, object]:
        """Return plain numbers, with None for NaN."""
        scores = {
            kind: {name: found.as_json() for name, found in of_kind.items()}
            for kind, of_kind in (("trained", self.trained), ("fitted", self.fitted))
        }
        plain: dict[str, object] = finite_or_none({"blend": self.blend, **scores})
        return plain


def fit_classifier(
    model: nn.Module,
    data: Dataset,
    clients: Partition | Sequence[IntArray],
    *,
    rule: Rule = "lda",
    prior: Prior = "equal",
    shrinkage: float | Literal["oas"] = "oas",
    blend: Blend = 1.0,
    validation: Examples | None = None,
    batch_size: int = BATCH,
) -> nn.Module:
    """Return a trained network with its classifier set in closed form.

    Each client adds up its embeddings by class, and one matrix of their products; the classifier
    follows from the sums over all clients. Nothing is trained.

    Args:
        model: A trained network, as `Result.model` is one; it stays as it is.
        data: The data set whose training examples the clients hold.
        clients: Which examples each client holds.
        rule: "lda", linear discriminant analysis; "ridge", ridge regression; "means", the nearest
            class mean.
        prior: "equal" weighs all classes alike; "federation" takes their frequency.
        shrinkage: How far the covariance is drawn towards a multiple of the identity, from 0 to 1;
            "oas" chooses it from the covariance and the number of samples.
        blend: Share of the closed form, from 0, which is the classifier as trained, to 1;
            "validation" chooses the share with the best score on `validation`.
        validation: Examples that no client trained on, for `blend="validation"`.
        batch_size: Examples that the network takes at once.

    Returns:
        A copy of the network with the new classifier, in evaluation mode.

    Raises:
        RecipeError: The classifier is not a linear layer with a bias, or an option is not allowed.
    """
    form = find_form(rule, prior, shrinkage)
    network = deepcopy(model).eval()
    rows = clients.clients if isinstance(clients, Partition) else clients
    fit = _Fit(network, data, batch_size)
    head, _ = fit.best(form, fit.sums(rows), blend, validation)
    restore(network, place_head(snapshot(network), fit.classifier, head))
    return network


def refit(
    path: Path,
    form: ClosedForm = LDA,
    *,
    blend: Blend = 1.0,
    out: Path | None = None,
    allow_code: AllowedCode = False,
) -> Refit:
    """Set the classifier of a finished run's final model in closed form, and score it.

    Args:
        path: Folder of the run, which stays as it is.
        form: How the classifier is computed.
        blend: From 0 to 1, or "validation", if the run holds out validation data.
        out: File for the model with the new classifier.
        allow_code: Whether model.name may be "package.module:function", which runs that code.

    Raises:
        RunError: The run is unfinished or private, or its data changed.
        RecipeError: The classifier is not a linear layer with a bias, or an option is not allowed.
    """
    folder = RunFolder(path)
    recipe = read_run_recipe(folder)
    if recipe.privacy != "none":
        raise RunError(
            f"{path} is private: its clients' sums must pass through secure aggregation, as they "
            "do in a run with method.classifier"
        )
    method = method_of(recipe)
    if not method.shares_model:
        raise RunError(
            f"{path} has no model for all, of which a classifier could be fitted: under "
            f"{method.name} every client has {method.unshared} for itself"
        )
    final = folder.file("final.safetensors")
    if not final.exists():
        raise RunError(f"{path} is unfinished; continue with: fedbb run --resume {path}")
    last = load_checkpoint(final)
    with threads(recipe.local.threads):
        federation = prepare(recipe)
        if not is_same_partition(folder, federation.partition):
            raise RunError(f"{path}: the recipe now divides the data in another way")
        dataset, batch = federation.dataset, recipe.evaluation.batch_size
        network = network_of(recipe, method, dataset, allow_code=allow_code)
        restore(network, last.state)
        fit = _Fit(network, dataset, batch)
        sums = fit.sums(federation.partition.clients)
        head, share = fit.best(form, sums, blend, federation.scored.get("validation"))
        state = place_head(last.state, fit.classifier, head)
        score = Scorer(network, dataset, federation.scored, batch, recipe.local.device)
        found = Refit(share, score(last.state), score(state), state)
    if out is not None:
        with writing(out):
            save_checkpoint(out, Checkpoint(last.round, state), read_model_metadata(final))
    return found


def find_form(rule: str, prior: str, shrinkage: float | Literal["oas"]) -> ClosedForm:
    """Return the closed form of these options; RecipeError says what is allowed."""
    try:
        return ClosedForm(rule, prior, shrinkage)  # type: ignore[arg-type]  # checked there
    except ValueError as error:
        raise RecipeError(str(error)) from error


class _Fit:
    """Classifiers of one network on the data of one federation."""

    def __init__(self, network: nn.Module, dataset: Dataset, batch_size: int) -> None:
        self.network, self.dataset, self.batch_size = network, dataset, batch_size
        self.classifier = linear_classifier(network, len(dataset.classes))
        self.trained = read_head(snapshot(network), self.classifier)

    def sums(self, clients: Sequence[IntArray]) -> EmbeddingSums:
        """Return the sums over all clients, to the same bits in whatever order they are given."""
        held = [rows for rows in clients if len(rows)]
        # By falling size as in a run, and then by rows, since the number of a client is arbitrary.
        held.sort(key=lambda rows: (-len(rows), int(rows[0])))
        return add_sums(
            add_sums(
                sum_embeddings(embeddings, labels, len(self.dataset.classes), self.dataset.task)
                for embeddings, labels in self._embed(self.dataset.train, rows)
            )
            for rows in held
        )

    def best(
        self, form: ClosedForm, sums: EmbeddingSums, blend: Blend, validation: Examples | None
    ) -> tuple[Head, float]:
        """Return the classifier, and the share of the closed form in it."""
        task, fitted = self.dataset.task, form.fit(sums, self.dataset.task)
        if not isinstance(blend, str):
            if not 0.0 <= blend <= 1.0:
                raise RecipeError(f'blend must be in [0, 1] or "validation", not {blend}')
            return blend_heads(self.trained, fitted, sums, blend, task), blend
        if blend != "validation":
            raise RecipeError(f'blend must be in [0, 1] or "validation", not {blend!r}')
        if validation is None:
            raise RecipeError(
                'blend = "validation" needs validation data (data.validation in a recipe, '
                "validation= in Python); without it choose a number from 0 to 1"
            )
        rows = np.arange(len(validation.labels))
        embeddings = torch.cat([batch for batch, _ in self._embed(validation, rows)])
        heads = {share: blend_heads(self.trained, fitted, sums, share, task) for share in BLENDS}
        metric = DEFAULT_METRIC[task]
        scores = {
            share: score_logits(head(embeddings).numpy(), validation.labels, task).macro[metric]
            for share, head in heads.items()
        }
        # The first of equal ones: as near to the trained classifier as the score allows.
        best = max(scores, key=lambda share: np.nan_to_num(scores[share], nan=-np.inf))
        return heads[best], best

    def _embed(self, examples: Examples, rows: IntArray) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield embeddings and labels of the examples in these rows, batch by batch."""
        self.network.eval()
        device = next(self.network.parameters()).device
        for start in range(0, len(rows), self.batch_size):
            chosen = rows[start : start + self.batch_size]
            inputs = torch.from_numpy(examples.inputs[chosen])
            inputs = normalize(inputs, self.dataset.mean, self.dataset.std).to(device)
            with torch.inference_mode():
                outputs = run_network(self.network, inputs, embed=True)
            assert outputs.embedding is not None  # asked for
            yield outputs.embedding.cpu(), torch.from_numpy(examples.labels[chosen])
