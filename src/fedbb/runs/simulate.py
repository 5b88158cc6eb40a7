"""A federation in memory: no recipe, no folder, for trying out a method of one's own."""

from __future__ import annotations

from collections.abc import Iterator

from fedbb.data.dataset import Dataset
from fedbb.engine.inline import Inline
from fedbb.evaluation.scorer import Scorer
from fedbb.methods import Method
from fedbb.partition.rules import Rule, divide
from fedbb.rounds import Round, Schedule, Start, federate
from fedbb.runs.network import make_network
from fedbb.state import snapshot
from fedbb.training.plan import LocalPlan, Share
from fedbb.training.threads import threads

PLAN = LocalPlan()


def simulate(
    dataset: Dataset,
    rule: Rule,
    method: Method,
    schedule: Schedule,
    *,
    model: str = "small-cnn",
    plan: LocalPlan = PLAN,
) -> Iterator[Round]:
    """Divide the data by a rule, train by a method, and yield the rounds with their test scores."""
    partition = divide(rule, dataset.train, dataset.task)
    projection = method.needs.projection
    network = make_network(model, dataset, plan, seed=schedule.seed, projection=projection)
    shares = [Share(dataset, indices) for indices in partition.clients]
    engine = Inline(network, shares, method, plan)
    scorer = Scorer(network, dataset, {"test": dataset.test}, device=plan.device)
    with threads(plan.threads):
        yield from federate(engine, method, Start(snapshot(network)), schedule, scorer)
