"""What the server of a run saw of its clients, value by value, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedbb.errors import RunError
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.runs.folder import Record, RunFolder
from fedbb.secagg.audit import solve_weights

EXAMPLES = 5
"""Rounds and clients that are told one by one in a sentence."""


@dataclass(frozen=True)
class Seen:
    """A value the server saw: of whom, when and what."""

    whose: str
    when: str
    what: str
    value: Any


@dataclass(frozen=True)
class Audit:
    """All the server saw, what follows from it, and what it did not see."""

    run: str
    privacy: str
    seen: tuple[Seen, ...]
    follows: tuple[str, ...]
    unseen: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the audit as plain values."""
        return asdict(self)


def audit_run(path: Path) -> Audit:
    """Return the audit of the run in this folder."""
    folder = RunFolder(path)
    if not folder.is_run():
        raise RunError(f"{path} is no run folder: it has no recipe.json")
    recipe = make_recipe(folder.read_json("recipe.json"), f"recipe of {path}")
    try:
        if recipe.privacy != "none":
            audit = folder.read_json("audit.json")
            return _private(path.name, recipe, audit, simulated=folder.file("parties").is_dir())
        return _plain(path.name, recipe, folder.read_json("federation.json"), folder.records())
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RunError(f"run folder {path} is damaged or of another kind: {reason}") from error


def _plain(
    name: str, recipe: Recipe, federation: Mapping[str, Any], records: Sequence[Record]
) -> Audit:
    if recipe.engine == "central":
        unseen = ("There are no clients: one place holds all data and trains.",)
        return Audit(name, "none", (), (), unseen)
    seen = [*_cards(federation["clients"]), *_updates(records)]
    unseen = ("Labels, class counts and images stay with their clients.",)
    return Audit(name, "none", tuple(seen), tuple(_plain_follows(federation, records)), unseen)


def _cards(clients: Sequence[Mapping[str, Any]]) -> Iterator[Seen]:
    for client in clients:
        whose = f"client {client['client']}"
        yield Seen(whose, "before round 1", "samples", client["samples"])
        if client["dispersion"] is not None:
            yield Seen(whose, "before round 1", "dispersion R", client["dispersion"])


def _updates(records: Sequence[Record]) -> Iterator[Seen]:
    for record in records:
        when = f"round {record['round']}"
        for client in record["clients"]:
            whose = f"client {client['client']}"
            yield Seen(whose, when, "model", "every parameter and buffer")
            yield Seen(whose, when, "steps", client["steps"])
            yield Seen(whose, when, "training loss", client["train_loss"])


def _plain_follows(federation: Mapping[str, Any], records: Sequence[Record]) -> Iterator[str]:
    clients = federation["clients"]
    weights = [f"client {c['client']} {c['weight']:.4f}" for c in clients]
    yield f"How much each client counts: {_some(weights)}."
    if all(client["dispersion"] is not None for client in clients):
        yield (
            "How uneven each client's labels are. R is 0 for equally many cases of each class, "
            "and with the size it narrows down what a client can hold."
        )
        single = [f"client {c['client']}" for c in clients if _holds_one(c, federation)]
        if single:
            yield f"Who holds cases of one class only: {_some(single)}."
    trained = {client["client"] for record in records for client in record["clients"]}
    if trained:
        yield (
            f"Whatever can be read from a single client's model: {len(trained)} clients gave "
            f"{sum(len(record['clients']) for record in records)} of them. That a certain image "
            "was trained on, or what images of a class look like, can be guessed from a model, "
            "and from its change over a round all the better."
        )


def _holds_one(client: Mapping[str, Any], federation: Mapping[str, Any]) -> bool:
    """Tell whether R alone says that all cases are of one class (only so if each has one label)."""
    classes = len(federation["classes"])
    largest = math.sqrt(classes - 1) / classes
    return bool(federation["task"] == "multiclass" and abs(client["dispersion"] - largest) < 1e-9)


def _private(name: str, recipe: Recipe, audit: Mapping[str, Any], *, simulated: bool) -> Audit:
    seen = [*_statistics(audit), *_sums(audit["rounds"]), *_scores(audit.get("scores", ()))]
    unseen = [
        "No client's size, dispersion, class counts, weight, steps, training loss or model came "
        "to the server, but for what is said to follow above."
    ]
    if simulated:
        unseen.append(
            "What clients keep is in parties/: in the field each of them has its own part of that."
        )
    follows = tuple(_private_follows(audit))
    return Audit(name, recipe.privacy, tuple(seen), follows, tuple(unseen))


def _statistics(audit: Mapping[str, Any]) -> Iterator[Seen]:
    found, when = audit["statistics"], "before round 1"
    group = f"{len(found['clients'])} clients together"
    yield Seen(group, when, "samples", found["samples"])
    if audit["gamma"] > 0:
        yield Seen(group, when, "sum of 1/R", found["evenness"])
    for client, digest in found["commitments"].items():
        yield Seen(f"client {client}", when, "commitment", digest)
    yield from _absences(found["absent"], when)


def _sums(rounds: Sequence[Mapping[str, Any]]) -> Iterator[Seen]:
    for seen in rounds:
        when = f"round {seen['round']}"
        group = f"{len(seen['clients'])} clients together"
        yield Seen(group, when, "who took part", seen["clients"])
        yield Seen(group, when, "sum of weights", seen["weight"])
        yield Seen(group, when, "weighed sum of changes, as a norm", seen["change"])
        if seen["steps"] != 1.0:
            yield Seen(group, when, "mean of their steps", seen["steps"])
        if seen["attempts"] > 1:
            yield Seen(group, when, "attempts", seen["attempts"])
        yield from _absences(seen["absent"], when)


def _scores(scored: Sequence[Mapping[str, Any]]) -> Iterator[Seen]:
    """Tell over whom sites' own scores were pooled; the figures are in the rounds' records."""
    for seen in scored:
        group = f"{len(seen['clients'])} clients together"
        for name, samples in seen["samples"].items():
            yield Seen(group, f"round {seen['round']}", f"scores on {name} data, samples", samples)


def _absences(absent: Sequence[Mapping[str, Any]], when: str) -> Iterator[Seen]:
    for gone in absent:
        yield Seen(f"client {gone['client']}", when, "is absent", gone["reason"])


def _private_follows(audit: Mapping[str, Any]) -> Iterator[str]:
    found = audit["statistics"]
    number = len(found["clients"])
    yield f"A client holds {found['samples'] / number:,.1f} samples in the mean of {number}."
    if audit["gamma"] > 0:
        yield f"1/R is {found['evenness'] / number:,.3f} in the mean."
    yield (
        f"Any {audit['threshold']} of the {audit['clients']} clients that work with the server "
        "can uncover the others' parts; fewer cannot."
    )
    yield from _solved(audit)
    yield (
        "Whatever can be read from the joined model, which is that of all who took part: secure "
        "aggregation hides whose it is, not what it is."
    )


def _solved(audit: Mapping[str, Any]) -> Iterator[str]:
    """Tell whose weights the sums over changing groups give away, and what follows from those."""
    rounds = audit["rounds"]
    # All weights together are one.
    groups = [*(seen["clients"] for seen in rounds), audit["statistics"]["clients"]]
    sums = [*(seen["weight"] for seen in rounds), 1.0]
    weights = solve_weights(groups, sums, audit["clients"])
    if not weights:
        yield "Nobody's weight: the groups of clients that were summed up tell none apart."
        return
    told = [f"client {client} {weight:.4f}" for client, weight in weights.items()]
    yield (
        f"The weight of {len(weights)} of {audit['clients']} clients: {_some(told)}. The groups "
        "changed from round to round, and the sums of weights over them have one solution."
    )
    yield from _behind(weights, audit)


def _behind(weights: Mapping[int, float], audit: Mapping[str, Any]) -> Iterator[str]:
    """Tell what weights were computed from, where that is one number."""
    found, gamma = audit["statistics"], audit["gamma"]
    held = {client: weight for client, weight in weights.items() if weight > 0}
    if gamma == 0:
        sizes = [f"client {k} {weight * found['samples']:,.0f}" for k, weight in held.items()]
        yield f"With that their samples: {_some(sizes)}."
    elif gamma == 1:
        spread = [f"client {k} {1 / (w * found['evenness']):.4f}" for k, w in held.items()]
        yield f"With that their dispersion R: {_some(spread)}."


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - EXAMPLES
    return ", ".join(texts[:EXAMPLES]) + (f" and {more} more" if more > 0 else "")
