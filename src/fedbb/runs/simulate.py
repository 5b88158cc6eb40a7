"""A federation in memory: no recipe and no folder, to try out a method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fedbb.data.dataset import Dataset
from fedbb.evaluation.evaluator import Scorer
from fedbb.methods import Method
from fedbb.partition.registry import Rule, divide
from fedbb.recipes.spec import ModelSpec
from fedbb.rounds.loop import Round, Schedule, Start, federate
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.runs.runtime import make_network
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.pool import Pool
from fedbb.state import snapshot
from fedbb.training.checks import check_device, check_network
from fedbb.training.client_dataset import make_client_datasets
from fedbb.training.config import LocalConfig
from fedbb.training.threads import threads

LOCAL = LocalConfig()


def simulate(
    dataset: Dataset,
    rule: Rule,
    method: Method,
    schedule: Schedule,
    *,
    model: str = "small-cnn",
    local: LocalConfig = LOCAL,
    seed: int = 0,
    workers: int = 0,
) -> Iterator[Round]:
    """Simulate a federation in memory and yield its rounds with their test scores.

    Args:
        dataset: Training and test data.
        rule: How the training data is divided among clients.
        method: The algorithm.
        schedule: Number of rounds, and participation.
        model: A network of the registry.
        local: Local training of a client.
        seed: Seed of all random streams; also of the partition, if its rule has none.
        workers: Worker processes that clients train in, to the same bits; 0 for none. A method's
            own parts must then come from a module that the workers can import.

    Yields:
        Each round with the model after it, the clients' reports and the scores.

    Raises:
        RecipeError: The network or the device cannot be used.
        DataError: The data cannot be divided by the rule.
    """
    check_device(local.device)
    partition = divide(rule.resolve(seed), dataset.train, dataset.task)
    network = make_network(ModelSpec(name=model), method, dataset, local, seed=seed)
    check_network(network, dataset, method)
    clients = make_client_datasets(dataset, partition.clients)
    start, scored = Start(snapshot(network), seed=seed), {"test": dataset.test}
    with threads(local.threads):
        if not workers:
            engine = Inline(network, clients, method, local)
            scorer = Scorer(network, dataset, scored, device=local.device)
            yield from federate(engine, method, start, schedule, scorer)
            return
        with TemporaryDirectory() as folder:
            engine = Inline(network, clients, method, local, ClientStateFiles(Path(folder)))
            with Pool(engine, scored, workers=workers) as pool:
                yield from federate(pool, method, start, schedule, pool)
