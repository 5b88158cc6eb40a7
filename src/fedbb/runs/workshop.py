"""Where a run's clients train and its states are scored: in this process, or in workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fedbb.engine.inline import Inline
from fedbb.engine.memory import MemoryStore
from fedbb.engine.pool import Pool, crew_size
from fedbb.errors import RunError
from fedbb.evaluation.scorer import Scorer
from fedbb.methods import Method
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState
from fedbb.rounds import Score, chosen_number
from fedbb.runs.network import make_network
from fedbb.runs.prepare import Federation
from fedbb.state import snapshot
from fedbb.training.plan import LocalPlan


@dataclass(frozen=True, eq=False)
class Workshop:
    """An engine, a scorer, the state that round one starts from, and how many workers there are.

    Without workers all is done in this process.
    """

    engine: Inline | Pool
    score: Score
    first: ModelState
    workers: int


def wanted_workers(recipe: Recipe, workers: int | None) -> int:
    """Return how many worker processes a recipe may have on this machine, 0 for none."""
    if recipe.engine in ("inline", "central"):
        if workers is not None and workers > 1:
            raise RunError(f'{workers} workers have no place in engine = "{recipe.engine}"')
        return 0
    number = crew_size(plan_of(recipe)) if workers is None else workers
    return 0 if recipe.engine == "auto" and number == 1 else number


@contextmanager
def open_workshop(
    recipe: Recipe, federation: Federation, method: Method, store: MemoryStore, workers: int
) -> Iterator[Workshop]:
    """Open what a recipe needs, with so many workers, and end them after the block."""
    plan = plan_of(recipe)
    clients = chosen_number(len(federation.partition.clients), recipe.rounds.participation)
    if recipe.engine == "auto" and clients == 1:
        workers = 0  # nothing to do side by side
    # Workers place the network on a device; here it is only a state to begin with.
    placed = replace(plan, device="cpu") if workers else plan
    wanted = recipe.model.projection
    projection = method.needs.projection if wanted is None else wanted
    model = make_network(
        recipe.model.name, federation.dataset, placed, seed=recipe.seed, projection=projection
    )
    first = snapshot(model)
    engine = Inline(model, federation.shares, method, plan, store)
    batch = recipe.evaluation.batch_size
    if not workers:
        scorer = Scorer(model, federation.dataset, federation.scored, batch, plan.device)
        yield Workshop(engine, scorer, first, 0)
        return
    with Pool(engine, federation.scored, batch_size=batch, workers=workers) as pool:
        # The pool reads shared copies; what is only held here would be held twice.
        del engine, federation
        yield Workshop(pool, pool, first, workers)


def plan_of(recipe: Recipe) -> LocalPlan:
    """Return how the clients of a recipe train."""
    # In central training a round is an epoch of one long run, so its momentum goes on.
    return LocalPlan(**recipe.local.model_dump(), keep_momentum=recipe.engine == "central")
