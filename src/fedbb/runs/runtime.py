"""Where a run's clients train and its states are scored: in this process, or in workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fedbb.aggregation.robust.krum import Krum
from fedbb.data.dataset import Dataset
from fedbb.errors import RunError
from fedbb.evaluation.evaluator import Scorer
from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.recipes.defense import least_answers
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState
from fedbb.rounds.filters import Clipped, SoundOnly, Trusted
from fedbb.rounds.loop import Score, chosen_number
from fedbb.rounds.round import Guard, Join, OpenJoin
from fedbb.runs.federation import Federation
from fedbb.runs.network import make_network
from fedbb.simulation.base import ask_all
from fedbb.simulation.client_state import MemoryStore
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.pool import Pool, crew_size
from fedbb.state import snapshot
from fedbb.training.config import LocalPlan


@dataclass(frozen=True, eq=False)
class Workshop:
    """A join, a scorer, the state that round one starts from, and how many workers there are.

    `dated` tells the round each client's memory is from. Without workers all is done in this
    process.
    """

    join: Join
    score: Score
    first: ModelState
    dated: dict[int, int]
    workers: int = 0


def wanted_workers(recipe: Recipe, workers: int | None) -> int:
    """Return how many worker processes a recipe may have on this machine, 0 for none."""
    if recipe.engine in ("inline", "central"):
        if workers is not None and workers > 1:
            raise RunError(f'{workers} workers have no place in engine = "{recipe.engine}"')
        return 0
    number = crew_size(plan_of(recipe)) if workers is None else workers
    return 0 if recipe.engine == "auto" and number == 1 else number


Joining = Callable[[Recipe, Inline | Pool], Join]
"""Makes of an engine how its clients' training becomes the next state."""


def make_join(recipe: Recipe, engine: Inline | Pool) -> Join:
    """Return how the clients' training becomes the next state under a recipe."""
    return OpenJoin(
        ask_all(engine), engine.method, engine.introduce(), recipe.seed, guard_of(recipe)
    )


@contextmanager
def open_workshop(
    recipe: Recipe,
    federation: Federation,
    method: Method,
    store: MemoryStore,
    workers: int,
    *,
    joining: Joining = make_join,
) -> Iterator[Workshop]:
    """Open what a recipe needs, with so many workers, and end them after the block."""
    plan = plan_of(recipe)
    clients = chosen_number(len(federation.partition.clients), recipe.rounds.participation)
    if recipe.engine == "auto" and clients == 1:
        workers = 0  # nothing to do side by side
    model = network_of(recipe, federation.dataset, method, workers)
    first = snapshot(model)
    engine = Inline(model, federation.shares, method, plan, store)
    batch = recipe.evaluation.batch_size
    if not workers:
        scorer = Scorer(model, federation.dataset, federation.scored, batch, plan.device)
        yield Workshop(joining(recipe, engine), scorer, first, engine.dated)
        return
    with Pool(engine, federation.scored, batch_size=batch, workers=workers) as pool:
        # The pool reads shared copies; what is only held here would be held twice.
        del engine, federation
        yield Workshop(joining(recipe, pool), pool, first, pool.dated, workers)


def network_of(recipe: Recipe, dataset: Dataset, method: Method, workers: int) -> NetworkModule:
    """Return the network that a recipe's run begins with."""
    # Workers place the network on a device; here it is only a state to begin with.
    plan = replace(plan_of(recipe), device="cpu") if workers else plan_of(recipe)
    wanted = recipe.model.projection
    projection = method.needs.projection if wanted is None else wanted
    return make_network(recipe.model.name, dataset, plan, seed=recipe.seed, projection=projection)


def guard_of(recipe: Recipe) -> Guard:
    """Return what the rounds of a recipe bear."""
    defense = recipe.defense
    bound = math.inf if defense.max_norm is None else defense.max_norm
    plain = Guard(defense.quorum, defense.attempts, defense.max_weight)
    if defense.rule is None:
        return plain if defense.max_norm is None else replace(plain, screen=SoundOnly(bound))
    if defense.rule == "clip":
        return replace(plain, screen=SoundOnly(), select=Clipped(bound))
    strict = replace(plain, screen=SoundOnly(bound), needs=least_answers(defense))
    if defense.rule in ("krum", "multi-krum"):
        krum = Krum(defense.byzantine, many=defense.rule == "multi-krum")
        return replace(strict, select=Trusted(krum))
    return strict


def plan_of(recipe: Recipe) -> LocalPlan:
    """Return how the clients of a recipe train."""
    # In central training a round is an epoch of one long run, so its momentum goes on.
    return LocalPlan(**recipe.local.model_dump(), keep_momentum=recipe.engine == "central")
