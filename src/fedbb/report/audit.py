"""What the server of a run received from its clients, and what can be inferred from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.errors import RunError
from fedbb.recipes.privacy import OPEN_RUN
from fedbb.recipes.spec import Recipe
from fedbb.records import Task
from fedbb.runs.folder import Record, RunFolder
from fedbb.runs.metadata import ClientRecord, FederationRecord, read_federation, read_run_recipe
from fedbb.secagg.audit import describe_dp, solve_weights
from fedbb.secagg.neighbours import SEPARATED_BITS, Neighbourhood, tolerated_colluders

EXAMPLES = 5
"""Rounds and clients that a sentence lists one by one."""

_MOST_CLIENTS = 100_000


@dataclass(frozen=True)
class Seen:
    """A value that the server received: whose, when and what."""

    whose: str
    when: str
    what: str
    value: Any


@dataclass(frozen=True)
class Audit:
    """All that the server received, what follows from it, and what it did not receive."""

    run: str
    privacy: str
    seen: tuple[Seen, ...]
    follows: tuple[str, ...]
    unseen: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the audit as plain values."""
        return asdict(self)


def audit_run(path: Path) -> Audit:
    """Return the audit of a run: what its server could see of each client.

    Args:
        path: The run folder.

    Raises:
        RunError: The folder holds no run, or is damaged.
    """
    folder = RunFolder(path)
    recipe = read_run_recipe(folder)
    try:
        if recipe.privacy != "none":
            audit = folder.read_json("audit.json")
            return _private(path.name, recipe, audit, simulated=folder.file("parties").is_dir())
        return _plain(path.name, recipe, read_federation(folder), folder.records())
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RunError(f"run folder {path} is damaged or of another kind: {reason}") from error


def _plain(
    name: str, recipe: Recipe, federation: FederationRecord, records: Sequence[Record]
) -> Audit:
    if recipe.engine == "central":
        unseen = ("There are no clients: training is central.",)
        return Audit(name, "none", (), (), unseen)
    seen = [*_client_info(federation.clients), *_updates(records)]
    shown = [note for note in federation.notes if note.startswith(OPEN_RUN)]
    follows = [*_plain_follows(federation, records), *(f"{n[0].upper()}{n[1:]}." for n in shown)]
    kept = "Labels and images" if shown else "Labels, class counts and images"
    unseen = (f"{kept} do not leave the clients.",)
    return Audit(name, "none", tuple(seen), tuple(follows), unseen)


def _client_info(clients: Sequence[ClientRecord]) -> Iterator[Seen]:
    for client in clients:
        whose = f"client {client.client}"
        yield Seen(whose, "before round 1", "samples", client.samples)
        if client.dispersion is not None:
            yield Seen(whose, "before round 1", "dispersion R", client.dispersion)


def _updates(records: Sequence[Record]) -> Iterator[Seen]:
    for record in records:
        when = f"round {record['round']}"
        for client in record["clients"]:
            whose = f"client {client['client']}"
            yield Seen(whose, when, "model", "every parameter and buffer")
            yield Seen(whose, when, "steps", client["steps"])
            yield Seen(whose, when, "training loss", client["train_loss"])


def _plain_follows(federation: FederationRecord, records: Sequence[Record]) -> Iterator[str]:
    clients = federation.clients
    weights = [f"client {client.client} {client.weight:.4f}" for client in clients]
    yield f"The weight of each client: {_some(weights)}."
    if all(client.dispersion is not None for client in clients):
        yield (
            "The label imbalance of each client. R is 0 for equally frequent classes, and together "
            "with the size it limits which class counts a client can have."
        )
        single = [f"client {c.client}" for c in clients if _holds_one(c, federation)]
        if single:
            yield f"Clients that hold one class only: {_some(single)}."
    trained = {client["client"] for record in records for client in record["clients"]}
    if trained:
        yield (
            f"Everything that a single client's model reveals: {len(trained)} clients sent "
            f"{sum(len(record['clients']) for record in records)} of them. Membership inference "
            "and reconstruction attacks work on a model, and better on its update over a round."
        )


def _holds_one(client: ClientRecord, federation: FederationRecord) -> bool:
    """Return whether R alone reveals that a multi-class client holds one class."""
    classes, spread = len(federation.classes), client.dispersion
    largest = math.sqrt(classes - 1) / classes
    if federation.task is not Task.MULTICLASS or spread is None:
        return False
    return abs(spread - largest) < 1e-9


def _private(name: str, recipe: Recipe, audit: Mapping[str, Any], *, simulated: bool) -> Audit:
    seen = [
        *_statistics(audit),
        *_sums(audit["rounds"]),
        *_merged_sums(audit.get("measured", ())),
        *_scores(audit.get("scores", ())),
    ]
    unseen = [
        "The server received no client's size, dispersion, class counts, weight, steps, training "
        "loss or model, except for what follows above."
    ]
    if simulated:
        unseen.append(
            "The clients' secrets are in parties/: in a deployment each client has only its own."
        )
    follows = tuple(_private_follows(audit))
    return Audit(name, recipe.privacy, tuple(seen), follows, tuple(unseen))


def _statistics(audit: Mapping[str, Any]) -> Iterator[Seen]:
    found, when = audit["statistics"], "before round 1"
    group = f"{len(found['clients'])} clients together"
    yield Seen(group, when, "samples", found["samples"])
    if audit["gamma"] > 0:
        yield Seen(group, when, "sum of 1/R", found["evenness"])
    for name, values in found.get("measured", {}).items():
        yield Seen(group, when, *_measured(name, values))
    for client, digest in found["commitments"].items():
        yield Seen(f"client {client}", when, "commitment", digest)
    yield from _failures(found["absent"], when)


def _measured(name: str, values: Any) -> tuple[str, str]:
    """Return what was summed before round 1 beside sizes, and the sum in short."""
    if name == FederationCounts.name:
        cases = [f"{number:,}" for number in values[0]]
        return "sum of label counts", f"positive cases {_some(cases)}"
    return f"sum of {name}", f"{np.size(values)} numbers"


def _sums(rounds: Sequence[Mapping[str, Any]]) -> Iterator[Seen]:
    for seen in rounds:
        when = f"round {seen['round']}"
        group = f"{len(seen['clients'])} clients together"
        yield Seen(group, when, "who took part", seen["clients"])
        yield Seen(group, when, "sum of weights", seen["weight"])
        yield Seen(group, when, "norm of the weighted sum of updates", seen["change"])
        if seen["steps"] != 1.0:
            yield Seen(group, when, "mean of their steps", seen["steps"])
        if seen["attempts"] > 1:
            yield Seen(group, when, "attempts", seen["attempts"])
        yield from _failures(seen["absent"], when)
        for client in seen.get("false_shares", ()):
            yield Seen(f"client {client['client']}", when, "false share", client["reason"])


def _merged_sums(measured: Sequence[Mapping[str, Any]]) -> Iterator[Seen]:
    """Yield the statistics of merged models whose sums the server saw."""
    for seen in measured:
        group = f"{len(seen['clients'])} clients together"
        names = ", ".join(seen["statistics"])
        yield Seen(group, f"round {seen['round']}", "sums of statistics of the merged model", names)


def _scores(scored: Sequence[Mapping[str, Any]]) -> Iterator[Seen]:
    """Yield the clients over which scores were pooled; the scores are in the rounds' records."""
    for seen in scored:
        group = f"{len(seen['clients'])} clients together"
        for name, samples in seen["samples"].items():
            yield Seen(group, f"round {seen['round']}", f"scores on {name} data, samples", samples)


def _failures(absent: Sequence[Mapping[str, Any]], when: str) -> Iterator[Seen]:
    for failure in absent:
        yield Seen(f"client {failure['client']}", when, "dropped out", failure["reason"])


def _private_follows(audit: Mapping[str, Any]) -> Iterator[str]:
    found = audit["statistics"]
    number = len(found["clients"])
    yield f"Clients hold {found['samples'] / number:,.1f} samples on average over {number}."
    if audit["gamma"] > 0:
        yield f"1/R is {found['evenness'] / number:,.3f} on average."
    yield _collusion(audit)
    yield from _solved(audit)
    yield from _solved_statistics(audit)
    if spent := describe_dp(audit):
        yield f"{spent[0].upper()}{spent[1:]}. CBR's sums, weights and scores are not covered."
    yield (
        "Everything that the aggregated model reveals: secure aggregation hides the contribution "
        "of each client, not the result."
    )


def _collusion(audit: Mapping[str, Any]) -> str:
    """Return how many clients that collude with a lying server can unmask another one."""
    threshold, clients = audit["threshold"], audit["clients"]
    if "graph" in audit:
        graph = Neighbourhood(**audit["graph"])
        if not 0 < graph.needed <= graph.drawn < audit["least"] <= clients <= _MOST_CLIENTS:
            raise ValueError(f"{graph} is not a graph of {clients} clients")
        most = tolerated_colluders(audit["least"], clients, graph)
        return (
            f"In its sparse graph each client draws {graph.drawn} neighbours. Up to {most} of the "
            f"{clients} clients that collude with a lying server can unmask a small group of "
            f"clients with a probability below 2^-{SEPARATED_BITS} only. {graph.needed} that are "
            "chosen after the draw can unmask a client that drew them."
        )
    # Honest clients sign one list of survivors: for two lists of t of n, 2t - n must sign both.
    colluders = min(2 * threshold - clients, threshold - 1)
    return (
        f"Any {colluders} of the {clients} clients that collude with a lying server can unmask the "
        "other clients' inputs; fewer cannot."
    )


def _solved(audit: Mapping[str, Any]) -> Iterator[str]:
    """Yield the weights that the sums over changing groups reveal, and what follows from them."""
    rounds = audit["rounds"]
    # All weights together are one.
    groups = [*(seen["clients"] for seen in rounds), audit["statistics"]["clients"]]
    sums = [*(seen["weight"] for seen in rounds), 1.0]
    weights = solve_weights(groups, sums, audit["clients"])
    if not weights:
        yield "No client's weight: the sums over groups of clients do not separate any."
        return
    listed = [f"client {client} {weight:.4f}" for client, weight in weights.items()]
    yield (
        f"The weight of {len(weights)} of {audit['clients']} clients: {_some(listed)}. The "
        "groups changed between rounds, and the sums of weights over them have one solution."
    )
    yield from _inputs_behind(weights, audit)


def _solved_statistics(audit: Mapping[str, Any]) -> Iterator[str]:
    """Yield the clients whose class counts follow from sums over changing groups."""
    groups = [seen["clients"] for seen in audit.get("measured", ())]
    if not groups:
        return
    if FederationCounts.name in audit["statistics"].get("measured", {}):
        groups.append(audit["statistics"]["clients"])
    alone = solve_weights(groups, [0.0] * len(groups), audit["clients"])
    if not alone:
        yield "No client's class counts: the sums over groups of clients do not separate any."
        return
    listed = [f"client {client}" for client in alone]
    yield (
        f"The class counts of {len(alone)} of {audit['clients']} clients: {_some(listed)}. The "
        "groups changed between rounds, and statistics by class include the counts. With "
        "defense.quorum = 1 and rounds.participation = 1 there is one group only."
    )


def _inputs_behind(weights: Mapping[int, float], audit: Mapping[str, Any]) -> Iterator[str]:
    """Yield the numbers from which weights were computed, where that is one per client."""
    found, gamma = audit["statistics"], audit["gamma"]
    held = {client: weight for client, weight in weights.items() if weight > 0}
    if gamma == 0:
        sizes = [f"client {k} {weight * found['samples']:,.0f}" for k, weight in held.items()]
        yield f"Therefore their samples: {_some(sizes)}."
    elif gamma == 1:
        spread = [f"client {k} {1 / (w * found['evenness']):.4f}" for k, w in held.items()]
        yield f"Therefore their dispersion R: {_some(spread)}."


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - EXAMPLES
    return ", ".join(texts[:EXAMPLES]) + (f" and {more} more" if more > 0 else "")
