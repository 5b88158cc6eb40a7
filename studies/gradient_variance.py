"""Variance of stochastic gradients under PNB and under the plain loss, at the same models.

The paper bounds FedBB's convergence by the variance of each client's stochastic gradients, and says
that PNB makes it smaller. Here both losses meet the same
models of a FedAvg run, the same clients and the same batches. The variance of the gradients divided
by the squared norm of their mean does not change when a loss is multiplied by a factor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fedbb
from fedbb.models import build_model
from fedbb.records import IntArray
from fedbb.report.statistics import interval_of
from studies.collect import write_rows
from studies.stored import RESULTS, Row, read_rows
from studies.tables import MISSING, markdown

FILE = "gradient-variance.csv"
IMAGES, CLIENTS, ROUNDS, EPOCHS, BATCH = 10_000, 10, 12, 2, 16
LOOKED_AT = (1, 4, 12)
BATCHES = 60
"""Batches of each client, drawn without replacement; all of them if it has fewer."""

SKEWS = (0.1, 0.5)
PLAIN = "cross-entropy"
LOSSES: dict[str, Callable[[IntArray], nn.Module]] = {
    PLAIN: lambda labels: nn.CrossEntropyLoss(),
    "PNB, μ = 4": lambda labels: _pnb(labels, 4.0),
    "PNB, unit mean weight": lambda labels: _pnb(labels, "unit"),
}


def main(words: Sequence[str] | None = None) -> None:
    """Measure the seeds that are not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    path = options.results / FILE
    rows = read_rows(path)
    known = {(float(row["delta"]), int(row["seed"])) for row in rows}
    for delta in SKEWS:
        for seed in options.seeds:
            if (delta, seed) not in known:
                rows += measure(delta, seed)
                write_rows(path, rows)
                print(f"δ = {delta}, seed {seed}: stored", flush=True)


def measure(delta: float, seed: int) -> list[Row]:
    """Return variance and squared mean of the gradients, for rounds, clients and losses."""
    data = _some_images(seed)
    clients = fedbb.partition.dirichlet(data, CLIENTS, delta, seed)
    local = fedbb.LocalConfig(epochs=EPOCHS, lr=0.01, batch_size=BATCH)
    run = fedbb.iter_rounds(data, clients, local=local, rounds=ROUNDS, seed=seed)
    network = build_model("small-cnn", len(data.classes), data.input_shape)
    rows: list[Row] = []
    for record in run:
        if record.round not in LOOKED_AT:
            continue
        network.load_state_dict(record.state)
        network.eval()
        for number, samples in enumerate(clients.clients):
            figures = compare_losses(network, data, np.asarray(samples), seed)
            for name, (variance, square) in figures.items():
                place = {"delta": delta, "seed": seed, "round": record.round, "client": number}
                rows.append({**place, "loss": name, "variance": variance, "square": square})
    return rows


def compare_losses(
    network: nn.Module, data: fedbb.Dataset, samples: IntArray, seed: int
) -> dict[str, tuple[float, float]]:
    """Return for each loss the variance of batch gradients and their mean's squared norm."""
    order = np.random.default_rng(seed).permutation(samples)
    batches = [order[n : n + BATCH] for n in range(0, len(order), BATCH)][:BATCHES]
    batches = [batch for batch in batches if len(batch) == BATCH] or batches
    labels = data.train.labels[samples]
    figures = {}
    for name, loss_of in LOSSES.items():
        loss = loss_of(labels)
        gradients = [_gradient(network, loss, data, batch) for batch in batches]
        figures[name] = spread(torch.stack(gradients))
    return figures


def spread(gradients: torch.Tensor) -> tuple[float, float]:
    """Return the variance of the rows, summed over entries, and the squared norm of their mean."""
    wide = gradients.double()
    mean = wide.mean(0)
    variance = (wide - mean).square().sum() / max(1, len(wide) - 1)
    return float(variance), float(mean.square().sum())


def table(rows: Sequence[Row], number: str = "10") -> str:
    """Return PNB's variance over the plain loss's: geometric means over clients, then seeds."""
    lines = []
    for name in list(LOSSES)[1:]:
        for measure, title in (("variance", "variance"), ("relative", "variance / squared mean")):
            cells = [
                _ratio_text(rows, name, measure, delta, round_)
                for delta in SKEWS
                for round_ in LOOKED_AT
            ]
            lines.append([f"{number}.{len(lines) + 1}", name, title, *cells])
    head = [f"δ = {delta}, round {round_}" for delta in SKEWS for round_ in LOOKED_AT]
    return markdown(["row", "loss", "ratio to cross-entropy of", *head], lines, words=3)


def _ratio_text(rows: Sequence[Row], name: str, measure: str, delta: float, round_: int) -> str:
    here = [r for r in rows if float(r["delta"]) == delta and int(r["round"]) == round_]
    means = []
    for seed in sorted({r["seed"] for r in here}):
        of = {(r["loss"], r["client"]): _value(r, measure) for r in here if r["seed"] == seed}
        clients = {client for _, client in of}
        logs = [np.log(of[name, client] / of[PLAIN, client]) for client in clients]
        means.append(float(np.mean(logs)))
    if not means:
        return MISSING
    interval = interval_of(means)
    low, high = np.exp([interval.low, interval.high])
    return f"{np.exp(np.mean(means)):.2f} [{low:.2f}, {high:.2f}]"


def _value(row: Mapping[str, str], measure: str) -> float:
    variance = float(row["variance"])
    return variance if measure == "variance" else variance / float(row["square"])


def _pnb(labels: IntArray, mu: float | str) -> nn.Module:
    return fedbb.PNBLoss.from_targets(labels, classes=10, beta=0.9999, tau=1.0, mu=mu)  # type: ignore[arg-type]


def _some_images(seed: int) -> fedbb.Dataset:
    return fedbb.data.load_dataset("cifar10", seed=seed).subset(IMAGES, seed)


def _gradient(
    network: nn.Module, loss: nn.Module, data: fedbb.Dataset, batch: IntArray
) -> torch.Tensor:
    network.zero_grad(set_to_none=True)
    inputs = torch.as_tensor(data.train.inputs[batch]).float() / 255
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (data.mean, data.std))
    output = network((inputs - mean) / std)
    logits = output.logits if hasattr(output, "logits") else output
    loss(logits, torch.as_tensor(data.train.labels[batch])).backward()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


if __name__ == "__main__":
    main()
