"""A federation in memory: no recipe, no folder, for trying out a method of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fedbb.data.dataset import Dataset
from fedbb.evaluation.evaluator import Scorer
from fedbb.methods import Method
from fedbb.partition.registry import Rule, divide
from fedbb.rounds.loop import Round, Schedule, Start, federate
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.runs.network import make_network
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.pool import Pool
from fedbb.state import snapshot
from fedbb.training.client_dataset import make_client_datasets
from fedbb.training.config import LocalConfig
from fedbb.training.threads import threads

PLAN = LocalConfig()


def simulate(
    dataset: Dataset,
    rule: Rule,
    method: Method,
    schedule: Schedule,
    *,
    model: str = "small-cnn",
    plan: LocalConfig = PLAN,
    workers: int = 0,
) -> Iterator[Round]:
    """Divide the data by a rule, train by a method, and yield the rounds with their test scores.

    With workers clients train side by side in so many processes, to the same bits; a method's own
    parts must then come from a module that these can import.
    """
    partition = divide(rule, dataset.train, dataset.task)
    projection = method.needs.projection
    network = make_network(model, dataset, plan, seed=schedule.seed, projection=projection)
    shares = make_client_datasets(dataset, partition.clients)
    start, scored = Start(snapshot(network)), {"test": dataset.test}
    with threads(plan.threads):
        if not workers:
            engine = Inline(network, shares, method, plan)
            scorer = Scorer(network, dataset, scored, device=plan.device)
            yield from federate(engine, method, start, schedule, scorer)
            return
        with TemporaryDirectory() as folder:
            engine = Inline(network, shares, method, plan, ClientStateFiles(Path(folder)))
            with Pool(engine, scored, workers=workers) as pool:
                yield from federate(pool, method, start, schedule, pool)
