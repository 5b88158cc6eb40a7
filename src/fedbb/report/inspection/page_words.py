"""The sentences of the inspection's page."""

from __future__ import annotations

from fedbb.analysis.inspect import Inspection
from fedbb.analysis.measures import gini_of, ratio_of
from fedbb.analysis.warnings import mean_distance
from fedbb.records import Task


def headline(found: Inspection) -> str:
    """Return what was looked at, in one sentence."""
    each = "one each" if found.statistics.task is Task.MULTICLASS else "any number each"
    classes, clients = len(found.statistics.classes), len(found.statistics.clients)
    return (
        f"{found.samples:,} samples of {classes:,} classes ({each}), held by {clients:,} "
        f"client{'s' if clients != 1 else ''}."
    )


def level_words(found: Inspection) -> dict[str, list[str]]:
    """Return for each level the sentences that go with its figures."""
    return {"case": _cases(found), "class": _classes(found), "client": _clients(found)}


def _cases(found: Inspection) -> list[str]:
    cases = found.cases
    if found.statistics.task is Task.MULTICLASS:
        before, after = cases.raw[0].max(), cases.classed[0].max()
        return [
            f"The class with the largest part of the loss has {before:.1%} of it in plain "
            f"cross-entropy and {after:.1%} with PNB, if every sample's loss is the same."
        ]
    before, middle = cases.raw.sum(axis=1), cases.cased.sum(axis=1)
    return [
        f"Of plain BCE, {before[0]:.1%} comes from positive cases and {before[1]:.1%} from "
        f"negative ones, if every case's loss is the same; weighed by α it is {middle[0]:.1%} and "
        f"{middle[1]:.1%}."
    ]


def _classes(found: Inspection) -> list[str]:
    classes, cases = found.classes, found.cases
    stages = [stage.sum(axis=0) for stage in (cases.raw, cases.cased, cases.classed)]
    words = [
        f"The largest class is {classes.ratio:,.1f} times the smallest that occurs; Gini "
        f"{classes.gini:.3f}, entropy {classes.entropy:.2f} bits: as uneven as "
        f"{classes.effective:.1f} equal classes."
    ]
    if found.statistics.task is Task.MULTILABEL:
        ratios = ", ".join(f"{ratio_of(stage):.1f}" for stage in stages)
        ginis = ", ".join(f"{gini_of(stage):.2f}" for stage in stages)
        words.append(
            "The classes' parts of the loss (plain; cases weighed; classes too) have a largest to "
            f"smallest ratio of {ratios} and a Gini of {ginis}."
        )
    if classes.sets is not None:
        sets = classes.sets
        words.append(
            f"{sets.seen:,} of the 2^{sets.classes} possible sets of classes occur; {sets.rare:,} "
            f"of them on fewer than ten samples, {sets.rare_samples:,} samples in all."
        )
    return words


def _clients(found: Inspection) -> list[str]:
    clients, reading = found.clients, found.settings.reading
    if len(clients.names) == 1:
        return ["There is one client, so there is nothing to compare at this level."]
    return [
        f"Weighed by size the clients count as {clients.effective['fedavg']:.1f} equal ones, by "
        f"CBR ({reading}, γ = {found.settings.gamma:g}) as {clients.effective[reading]:.1f}.",
        f"On average a client's label mix is {mean_distance(clients):.3f} away from that of all "
        f"(total variation; random draws of these sizes: "
        f"{float(clients.by_size @ clients.noise):.3f}).",
    ]
