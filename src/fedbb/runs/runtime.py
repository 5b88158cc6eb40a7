"""Where a run's clients train and its states are scored: in this process, or in workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fedbb.aggregation.robust import Krum
from fedbb.data.dataset import Dataset
from fedbb.errors import RunError
from fedbb.evaluation.evaluator import Scorer
from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.recipes.defense import least_answers
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState
from fedbb.rounds.filters import ClipFilter, KrumFilter, ValidUpdates
from fedbb.rounds.loop import Score, chosen_number
from fedbb.rounds.round import FederatedRound, PlainRound, RoundPolicy, train_all
from fedbb.runs.federation import Federation
from fedbb.runs.network import make_network
from fedbb.simulation.client_state import ClientStateStore
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.pool import Pool, worker_count
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig


@dataclass(frozen=True, eq=False)
class RunRuntime:
    """A join, a scorer, the state that round one starts from, and how many workers there are.

    `state_rounds` tells the round each client's memory is from. Without workers all is done in this
    process.
    """

    join: FederatedRound
    score: Score
    first: ModelState
    state_rounds: dict[int, int]
    workers: int = 0


def wanted_workers(recipe: Recipe, workers: int | None) -> int:
    """Return how many worker processes a recipe may have on this machine, 0 for none."""
    if recipe.engine in ("inline", "central"):
        if workers is not None and workers > 1:
            raise RunError(f'{workers} workers have no place in engine = "{recipe.engine}"')
        return 0
    number = worker_count(local_config_of(recipe)) if workers is None else workers
    return 0 if recipe.engine == "auto" and number == 1 else number


Joining = Callable[[Recipe, Inline | Pool], FederatedRound]
"""Makes of an engine how its clients' training becomes the next state."""


def make_join(recipe: Recipe, engine: Inline | Pool) -> FederatedRound:
    """Return how the clients' training becomes the next state under a recipe."""
    return PlainRound(
        train_all(engine),
        engine.method,
        engine.client_infos(),
        recipe.seed,
        round_policy_of(recipe),
    )


@contextmanager
def open_runtime(
    recipe: Recipe,
    federation: Federation,
    method: Method,
    store: ClientStateStore,
    workers: int,
    *,
    joining: Joining = make_join,
) -> Iterator[RunRuntime]:
    """Open what a recipe needs, with so many workers, and end them after the block."""
    plan = local_config_of(recipe)
    clients = chosen_number(len(federation.partition.clients), recipe.rounds.participation)
    if recipe.engine == "auto" and clients == 1:
        workers = 0  # nothing to do side by side
    model = network_of(recipe, federation.dataset, method, workers)
    first = snapshot(model)
    engine = Inline(model, federation.shares, method, plan, store)
    batch = recipe.evaluation.batch_size
    if not workers:
        scorer = Scorer(model, federation.dataset, federation.scored, batch, plan.device)
        yield RunRuntime(joining(recipe, engine), scorer, first, engine.state_rounds)
        return
    with Pool(engine, federation.scored, batch_size=batch, workers=workers) as pool:
        # The pool reads shared copies; what is only held here would be held twice.
        del engine, federation
        yield RunRuntime(joining(recipe, pool), pool, first, pool.state_rounds, workers)


def network_of(recipe: Recipe, dataset: Dataset, method: Method, workers: int) -> NetworkModule:
    """Return the network that a recipe's run begins with."""
    # Workers place the network on a device; here it is only a state to begin with.
    plan = replace(local_config_of(recipe), device="cpu") if workers else local_config_of(recipe)
    wanted = recipe.model.projection
    projection = method.needs.projection if wanted is None else wanted
    return make_network(recipe.model.name, dataset, plan, seed=recipe.seed, projection=projection)


def round_policy_of(recipe: Recipe) -> RoundPolicy:
    """Return what the rounds of a recipe bear."""
    defense = recipe.defense
    bound = math.inf if defense.max_norm is None else defense.max_norm
    plain = RoundPolicy(defense.quorum, defense.attempts, defense.max_weight)
    if defense.rule is None:
        return plain if defense.max_norm is None else replace(plain, validate=ValidUpdates(bound))
    if defense.rule == "clip":
        return replace(plain, validate=ValidUpdates(), select=ClipFilter(bound))
    strict = replace(plain, validate=ValidUpdates(bound), min_updates=least_answers(defense))
    if defense.rule in ("krum", "multi-krum"):
        krum = Krum(defense.byzantine, many=defense.rule == "multi-krum")
        return replace(strict, select=KrumFilter(krum))
    return strict


def local_config_of(recipe: Recipe) -> LocalConfig:
    """Return how the clients of a recipe train."""
    # In central training a round is an epoch of one long run, so its momentum goes on.
    return LocalConfig(**recipe.local.model_dump(), keep_momentum=recipe.engine == "central")
