"""The real cases of docs/imbalance.md: tables made from real label tables, which you give as files.

Without files it makes those on CIFAR-10, CIFAR-100 and Tiny-ImageNet, whose counts are known. With
--write it puts the tables into a page, each between its own two marks.
"""

import argparse
import re
from pathlib import Path

import numpy as np

import fedbb
from fedbb._util.table import make_table, to_markdown
from fedbb.analysis.advice import middle_value
from fedbb.analysis.label_files import Layout, read_label_table
from fedbb.analysis.measures import Settings, gini_of, ratio_of
from fedbb.data.examples import tail_sizes
from fedbb.partition.registry import Rule

XRAY = Settings(beta=0.9999999, tau=10.0, mu=4.0)
POLICIES = ("zeros", "ones", "ignore")
READINGS = ("share-std", "share-var", "count-std", "printed")


def main():
    arguments = read_arguments()
    tables = {"long-tail": long_tail(), "advice": advice(arguments.nih, arguments.chexpert)}
    if arguments.nih:
        tables["nih"] = nih(arguments.nih)
    if arguments.chexpert:
        tables["chexpert"] = chexpert(arguments.chexpert)
    for name, text in tables.items():
        if arguments.write:
            put(arguments.write, name, text)
        else:
            print(f"## {name}\n\n{text}")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nih", type=Path, help="Data_Entry_2017.csv of ChestX-ray14, or .gz")
    parser.add_argument("--chexpert", type=Path, help="train.csv of CheXpert, or .gz")
    parser.add_argument("--write", type=Path, help="the page to put the tables into")
    return parser.parse_args()


def put(page, name, text):
    """Replace what stands between a table's two marks."""
    marks = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    old = page.read_text("utf-8")
    page.write_text(
        re.sub(marks, lambda found: found[1] + text + found[2], old, flags=re.S), "utf-8"
    )


def table(head, rows):
    return to_markdown(make_table(head, rows), escaped=False)


def percent(pair):
    return " / ".join(f"{100 * value:.2f}" for value in pair)


def nih(path):
    """Every class on its way from plain BCE to PNB, at the paper's β and τ."""
    labels = read_label_table(path).labels
    found = fedbb.inspect(labels, settings=XRAY)
    cases = found.cases
    order = np.argsort(-cases.positive)
    rows = [
        [
            labels.classes[place].replace("_", " "),
            f"{cases.positive[place]:,.0f}",
            f"{cases.alpha_positive[place]:.4f}",
            *(percent(stage[:, place]) for stage in stages(cases)),
        ]
        for place in order
    ]
    rows += stage_rows(cases, 2)
    head = ["class", "A", "α⁺", "plain BCE, %", "cases weighed, %", "PNB, %"]
    sets = found.classes.sets
    words = (
        f"\n{sets.seen:,} of 2¹⁴ label sets occur, {sets.rare:,} of them on fewer than ten films "
        f"({sets.rare_samples:,} films in all).\n"
    )
    return table(head, rows) + words


def stages(cases):
    return cases.raw, cases.cased, cases.classed


def stage_rows(cases, blank):
    """Totals of positives and negatives, and how uneven the classes' parts are."""
    totals = [stage.sum(axis=0) for stage in stages(cases)]
    empty = [""] * blank
    return [
        ["**all, pos. / neg.**", *empty, *(percent(stage.sum(axis=1)) for stage in stages(cases))],
        ["**largest : smallest class**", *empty, *(f"{ratio_of(total):.1f}" for total in totals)],
        ["**Gini of the classes**", *empty, *(f"{gini_of(total):.2f}" for total in totals)],
    ]


def chexpert(path):
    """What each policy on uncertain labels makes of the ten classes; blanks are zeros."""
    labels = {
        policy: read_label_table(path, Layout(uncertain=policy)).labels for policy in POLICIES
    }
    found = {policy: fedbb.inspect(labels[policy], settings=XRAY) for policy in POLICIES}
    rows = [
        [
            name,
            *(f"{found[policy].cases.positive[place]:,.0f}" for policy in POLICIES),
            *(f"{found[policy].cases.alpha_positive[place]:.4f}" for policy in POLICIES),
        ]
        for place, name in enumerate(found["zeros"].statistics.classes)
    ]
    text = table(["class", *(f"A, {p}" for p in POLICIES), *(f"α⁺, {p}" for p in POLICIES)], rows)
    facts = [
        policy_row(policy, settings, fedbb.inspect(labels[policy], settings=settings))
        for settings in (XRAY, Settings())
        for policy in POLICIES
    ]
    head = ["β, τ, policy", "plain BCE, %", "PNB, %", "largest : smallest class", "Gini", "α⁺"]
    return f"{text}\n{table(head, facts)}"


def policy_row(policy, settings, found):
    raw, _, classed = stages(found.cases)
    parts, alpha = classed.sum(axis=0), found.cases.alpha_positive
    return [
        f"{settings.beta:.10g}, {settings.tau:g}, {policy}",
        percent(raw.sum(axis=1)),
        percent(classed.sum(axis=1)),
        f"{ratio_of(parts):.1f}",
        f"{gini_of(parts):.2f}",
        f"{alpha.min():.2f}–{alpha.max():.2f}",
    ]


def long_tail():
    """LT-CIFAR-10 under three concentrations: what weights the clients get."""
    labels = np.repeat(np.arange(10), tail_sizes(np.full(10, 5000), 0.1))
    rows = []
    for concentration in (0.05, 0.1, 0.5):
        found = fedbb.inspect(labels, Rule("label-skew", 10, concentration))
        clients = found.clients
        rows.append(
            [
                f"{concentration:g}",
                f"{clients.samples.min():,}–{clients.samples.max():,}",
                f"{clients.by_size @ clients.distance:.2f}",
                f"{(found.statistics.positive == 0).mean():.0%}",
                " → ".join(f"{share:.2f}" for share in dominant(found)),
                f"{clients.loss_weight.min():.2f}–{clients.loss_weight.max():.2f}",
                f"{clients.effective['fedavg']:.1f}",
                *(f"{clients.effective[r]:.1f}, {clients.weights[r].max():.2f}" for r in READINGS),
            ]
        )
    head = ["δ", "samples", "distance", "empty cells", "largest class", "mean weight", "FedAvg"]
    return table([*head, *READINGS], rows)


def dominant(found):
    """The part of its client's loss that a client's largest class has, before and after PNB."""
    positive, negative = found.statistics.positive, found.statistics.negative
    alpha, _ = fedbb.case_weights(positive, negative, beta=found.settings.beta)
    parts = (positive, alpha * positive)
    return [np.mean(part.max(axis=1) / np.maximum(part.sum(axis=1), 1e-12)) for part in parts]


PAPER = {
    "CIFAR-10, δ = 0.05": (10, 0.05, (5000, 10, 1.0), Settings(0.6, 1, 5)),
    "CIFAR-10, δ = 0.1": (10, 0.1, (5000, 10, 1.0), Settings(0.9999, 1, 4)),
    "CIFAR-10, δ = 0.5": (10, 0.5, (5000, 10, 1.0), Settings(0.9999, 1, 4)),
    "LT-CIFAR-10, δ = 0.1": (10, 0.1, (5000, 10, 0.1), Settings(0.9999, 1, 4)),
    "LT-CIFAR-10, δ = 0.5": (10, 0.5, (5000, 10, 0.1), Settings(0.9999, 1, 4)),
    "CIFAR-100, δ = 0.1": (16, 0.1, (500, 100, 1.0), Settings(0.99, 1, 5)),
    "CIFAR-100, δ = 0.5": (16, 0.5, (500, 100, 1.0), Settings(0.99, 1, 5)),
    "LT-CIFAR-100, δ = 0.1": (16, 0.1, (500, 100, 0.1), Settings(0.999, 1, 5)),
    "LT-CIFAR-100, δ = 0.5": (16, 0.5, (500, 100, 0.1), Settings(0.999, 10, 5)),
    "Tiny-ImageNet, δ = 0.5": (16, 0.5, (500, 200, 1.0), Settings(0.9999, 1, 4)),
}


def advice(nih_path, chexpert_path):
    """Our rules beside the paper's settings, with what each of the two leads to."""
    rows = []
    for name, (clients, concentration, (most, classes, factor), settings) in PAPER.items():
        labels = np.repeat(np.arange(classes), tail_sizes(np.full(classes, most), factor))
        rule = Rule("label-skew", clients, concentration)
        rows.append(advice_row(name, labels, rule, settings))
    for name, path in (("ChestX-ray14", nih_path), ("CheXpert", chexpert_path)):
        for concentration in (1.0, 0.1) if path else ():
            labels = read_label_table(path).labels
            rule = Rule("quantity-skew", 5, concentration)
            rows.append(advice_row(f"{name}, δ = {concentration:g}", labels, rule, XRAY))
    head = ["data", "paper: β, τ, μ, γ", "saturation", "mean weight"]
    return table([*head, "rule: β, τ, μ, γ", "saturation", "mean weight"], rows)


def advice_row(name, labels, rule, settings):
    before = fedbb.inspect(labels, rule, settings=settings)
    advised = before.advice
    changed = Settings(advised.beta, advised.tau, advised.mu, advised.gamma)
    after = fedbb.inspect(labels, rule, settings=changed)
    return [name, *outcome(before), *outcome(after)]


def outcome(found):
    """A setting, how saturated the middle client's largest class is, and the mean weight."""
    settings, clients = found.settings, found.clients
    most = middle_value(found.statistics.positive.max(axis=1), clients.samples)
    saturation = 1 - settings.beta ** (most / settings.tau)
    values = (settings.beta, settings.tau, settings.mu, settings.gamma)
    words = ", ".join(f"{value:.10g}" for value in values)
    weight = clients.by_size @ clients.loss_weight
    return words, f"{saturation:.2f}", f"{weight:.2f}"


if __name__ == "__main__":
    main()
