"""What a run computes with: its network, and where clients train and models are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import nn

from fedbb._util.plugins import AllowedCode
from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import RecipeError, RunError
from fedbb.evaluation.metrics import Scorer
from fedbb.evaluation.own_models import PersonalScores
from fedbb.evaluation.sites import SiteScores, SiteSpread
from fedbb.methods import Method
from fedbb.models.registry import MODELS, ModelSource, finish_model, resolve_model
from fedbb.models.weights import load_weights
from fedbb.recipes.spec import ModelSpec, Recipe
from fedbb.records import FloatArray, ModelState, Tensors
from fedbb.rounds.loop import Score, ScoreClients, chosen_number
from fedbb.rounds.round import FederatedRound, PlainRound, train_all
from fedbb.rounds.server_steps import open_server_steps
from fedbb.runs.federation import OWN_TEST, Federation
from fedbb.runs.final_scores import FinalScorer, ModelScores
from fedbb.runs.own_models import OwnModels, OwnModelScorer, ScoreModel, divide_own_test
from fedbb.simulation.inline import ClientStateStore, Inline
from fedbb.simulation.pool.pool import Pool, worker_count
from fedbb.state import snapshot
from fedbb.training.config import CentralConfig, LocalConfig
from fedbb.training.local import NO_MODEL

ScoreFully = Callable[[int, ModelState], ModelScores]
"""Returns all scores of the model after the round of this number."""


@dataclass(frozen=True, eq=False)
class RunRuntime:
    """What the rounds of a run need.

    Attributes:
        round: How the chosen clients' training becomes the next global model.
        score: How a model is scored.
        first: The model that round 1 starts from.
        state_rounds: The round that each client's state is from.
        workers: Number of worker processes; with 0 everything happens in this process.
        score_fully: Returns all scores of the model of a round; None if nobody here can.
        score_clients: Scores the clients' own models in place of `score` and `score_fully`, where
            the method has no usable global model; else None.
        score_personal: Scores the clients' own models on their own test data, given the shared
            model and the server state, if the recipe asks for it during the run; else None.
    """

    round: FederatedRound
    score: Score
    first: ModelState
    state_rounds: dict[int, int]
    workers: int = 0
    score_fully: ScoreFully | None = None
    score_clients: ScoreClients | None = None
    score_personal: Callable[[ModelState, Tensors], PersonalScores] | None = None


SumSites = Callable[[int, ModelState, tuple[SiteScores, ...]], tuple[SiteSpread, ...]]
"""Sums the scores of a round's model on the clients' own test data, so that none is known."""

ScorePersonal = Callable[[ModelState, Tensors], PersonalScores]
"""Scores the clients' own models, given the shared model and the server state."""


class ClientScorers(TypedDict):
    """What scores the clients' own models, as `RunRuntime` holds it."""

    score_clients: ScoreClients | None
    score_personal: ScorePersonal | None


MakeRound = Callable[[Recipe, Inline | Pool], FederatedRound]
"""Makes of an engine the rounds of a recipe."""


def plain_round(recipe: Recipe, engine: Inline | Pool) -> FederatedRound:
    """Return the rounds of a recipe without secure aggregation."""
    ask, infos = train_all(engine), engine.client_infos()
    return PlainRound(
        ask,
        engine.method,
        infos,
        recipe.seed,
        recipe.defense,
        server_steps=open_server_steps(
            engine, recipe.seed, label_counts=bool(recipe.evaluation.logit_adjustment)
        ),
    )


def choose_workers(recipe: Recipe, workers: int | None) -> int:
    """Return how many worker processes a recipe may use on this machine, 0 for none."""
    if workers is not None and workers < 0:
        raise RunError(f"workers is {workers}; allowed: 0 for none, or a number of processes")
    if recipe.engine in ("inline", "central"):
        if workers is not None and workers > 1:
            raise RunError(
                f'engine = "{recipe.engine}" uses no worker processes, and {workers} are asked for'
            )
        return 0
    number = worker_count(recipe.local) if workers is None else workers
    return 0 if recipe.engine == "auto" and number == 1 else number


@contextmanager
def open_runtime(
    recipe: Recipe,
    federation: Federation,
    network: nn.Module,
    method: Method,
    store: ClientStateStore,
    workers: int,
    *,
    by_client: Sequence[nn.Module] = (),
    make_round: MakeRound = plain_round,
    sum_sites: SumSites | None = None,
) -> Iterator[RunRuntime]:
    """Open what the rounds of a recipe need, and end its workers after the block."""
    local = local_config_of(recipe)
    clients = chosen_number(len(federation.partition.clients), recipe.rounds.participation)
    if recipe.engine == "auto" and clients == 1:
        workers = 0  # nothing to do in parallel
    # Clients with different networks exchange no model.
    first = NO_MODEL if by_client else snapshot(network)
    infos = federation.client_infos(method.weighting)
    engine = Inline(
        network, federation.clients, method, local, store, by_client=by_client, infos=infos
    )
    batch = recipe.evaluation.batch_size
    final, own = FinalScorer.of(recipe, federation), federation.own_test
    further = {} if own is None else {OWN_TEST: own.examples}
    if not method.shares_model:
        further = divide_own_test(own)
    elif recipe.evaluation.personal is not None:
        further |= divide_own_test(own)
    firsts = engine.firsts
    open_clients = _client_scorer(recipe, method, federation, (first, firsts), store, further)
    if not workers:
        examples, device = federation.scored, local.device
        scorer = Scorer(network, federation.dataset, examples, batch, device, by_client)
        everything = replace(scorer, examples={**scorer.examples, **further})
        rounds = make_round(recipe, engine)
        final = final.with_counts(rounds.server_steps.measured)
        yield RunRuntime(
            rounds,
            scorer,
            first,
            engine.state_rounds,
            score_fully=_hiding(final, everything.outputs, sum_sites),
            **open_clients(rounds, engine, scorer, everything),
        )
        return
    with Pool(
        engine, federation.scored, further=further, batch_size=batch, workers=workers
    ) as pool:
        # The pool reads shared copies; what is only held here would be held twice.
        del engine, federation, own, further
        rounds = make_round(recipe, pool)
        final = final.with_counts(rounds.server_steps.measured)
        yield RunRuntime(
            rounds,
            pool,
            first,
            pool.state_rounds,
            workers,
            score_fully=_hiding(final, pool.outputs, sum_sites),
            **open_clients(rounds, pool, pool, pool),
        )


def _client_scorer(
    recipe: Recipe,
    method: Method,
    federation: Federation,
    begin: tuple[ModelState, Sequence[ModelState]],
    store: ClientStateStore,
    tests: Mapping[str, Examples],
) -> Callable[[FederatedRound, Inline | Pool, ScoreModel, Scorer | Pool], ClientScorers]:
    """Return what scores the clients' own models, given the rounds and the engine of a run.

    `begin` is the first model that all share, and those of the networks of clients.
    """
    task, labels = federation.dataset.task, {name: part.labels for name, part in tests.items()}

    def open_clients(
        rounds: FederatedRound, engine: Inline | Pool, score: ScoreModel, scorer: Scorer | Pool
    ) -> ClientScorers:
        every = recipe.evaluation.personal
        if method.shares_model and every is None:
            return {"score_clients": None, "score_personal": None}
        first, firsts = begin
        kept = (store, engine.state_rounds, method.personal)
        models = OwnModels(rounds.clients, first, *kept, rounds.server_steps, firsts)
        hidden, shares = recipe.privacy != "none", method.shares_model
        found = OwnModelScorer(models, score, scorer.outputs, labels, task, hidden, shares)
        return {
            "score_clients": None if shares else found,
            "score_personal": None if every is None else found.personal,
        }

    return open_clients


def _hiding(
    final: FinalScorer,
    outputs: Callable[[ModelState], Mapping[str, FloatArray]],
    sum_sites: SumSites | None,
) -> ScoreFully:
    """Return the full scores, with sums in place of the clients' own scores if they are private."""

    def score(number: int, state: ModelState) -> ModelScores:
        scores = final(number, outputs(state))
        if sum_sites is None:
            return scores
        return replace(scores, sites=(), site_sums=sum_sites(number, state, scores.sites))

    return score


def local_config_of(recipe: Recipe) -> LocalConfig:
    """Return how the clients of a recipe train in its number of rounds."""
    local = recipe.local.over(recipe.rounds.number)
    # In central training a round is an epoch of one long run, so its optimizer goes on.
    return CentralConfig(**vars(local)) if recipe.engine == "central" else local


def network_of(
    recipe: Recipe,
    method: Method,
    dataset: Dataset,
    *,
    device: str | None = None,
    allow_code: AllowedCode = False,
) -> nn.Module:
    """Return the network that a recipe's run begins with, on its own device or on this one.

    If clients have different networks, it is the first of them.
    """
    local = recipe.local if device is None else replace(recipe.local, device=device)
    first = recipe.model.networks[0]
    return make_network(first, method, dataset, local, seed=recipe.seed, allow_code=allow_code)


def networks_of(
    recipe: Recipe,
    method: Method,
    dataset: Dataset,
    *,
    device: str | None = None,
    allow_code: AllowedCode = False,
) -> tuple[nn.Module, ...]:
    """Return the networks that clients take in turn; none if all have the same."""
    if not recipe.model.by_client:
        return ()
    return tuple(
        network_of(
            recipe.model_copy(update={"model": one}),
            method,
            dataset,
            device=device,
            allow_code=allow_code,
        )
        for one in recipe.model.networks
    )


def make_network(
    model: ModelSource | ModelSpec,
    method: Method,
    dataset: Dataset,
    local: LocalConfig,
    *,
    seed: int,
    allow_code: AllowedCode = False,
) -> nn.Module:
    """Return a network for a method and a data set, placed as local training asks.

    Args:
        model: Which network: the section of a recipe, the name of a built-in one, a function that
            returns one, or a module, which is copied with its weights.
        method: The algorithm that trains it.
        dataset: The data, which gives the number of classes and the shape of inputs.
        local: Device and memory format.
        seed: Seed of the initial weights.
        allow_code: Whether a name of the form "package.module:function" may run.

    Raises:
        RecipeError: The network is unknown or cannot be built, or the device cannot be used.
    """
    if isinstance(model, str):
        model = ModelSpec(name=model)
    if isinstance(model, ModelSpec):
        network = _named_network(model, method, dataset, seed, allow_code)
    else:
        network = resolve_model(model, dataset, seed=seed)
    try:
        network = network.to(local.device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(f"local.device {local.device!r} cannot be used: {error}") from error
    # The format is one of images; a network for volumes has no use for it.
    if local.channels_last and not any(p.ndim == 5 for p in network.parameters()):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _named_network(
    model: ModelSpec, method: Method, dataset: Dataset, seed: int, allow_code: AllowedCode
) -> nn.Module:
    follows_method = model.projection is None and model.name in MODELS
    network = resolve_model(
        model.name,
        dataset,
        seed=seed,
        projection=method.needs.projection if follows_method else bool(model.projection),
        options=model.options,
        allow_code=allow_code,
    )
    if model.weights is not None:
        load_weights(network, model.weights)
    finish_model(network, freeze=model.freeze, classifier=model.classifier)
    return network
