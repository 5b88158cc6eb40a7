"""Eq. 7 and Figure 1: how PNB weights the label types of an image (docs/paper-notes.md, 12)."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbb.imbalance import case_weights
from fedbb.losses.pnb import PNBLoss

NOTES = (Path(__file__).parents[2] / "docs" / "paper-notes.md").read_text("utf-8")
IMAGES = 112_120
NIH = (11559, 2776, 13317, 19894, 5782, 6331, 1431, 5302, 4667, 2303, 2516, 1686, 3385, 227)
"""Positives of NIH's fourteen findings."""
THREE = (2776, 5782, 19894)
"""Cardiomegaly, Mass, Infiltration: the rare, the middle and the frequent class of the example."""
TYPES = {
    "A": (1, 1, 1),
    "B": (1, 1, 0),
    "C": (1, 0, 1),
    "D": (0, 1, 1),
    "E": (1, 0, 0),
    "F": (0, 1, 0),
    "G": (0, 0, 1),
    "H": (0, 0, 0),
}
"""Which classes are positive, as the exponents of λ, ν, ρ and ψ in Eq. 7 imply."""


def alphas(counts, beta=0.9999999, tau=10.0):
    positive = np.array(counts)
    return case_weights(positive, IMAGES - positive, beta=beta, tau=tau)


def probability(types, counts):
    """Return how probable each label type is if the classes are independent."""
    share = np.array(counts) / IMAGES
    return np.where(types, share, 1 - share).prod(axis=-1)


def weight(types, pos, neg):
    """Return the weight of an image by Eq. 6 at equal loss per entry, μ = 1."""
    return (pos * np.where(types, pos, neg)).sum(axis=-1)


def printed(types, lam, nu, rho, psi):
    """Return the coefficients of Eq. 7, of λ, ν, ρ and ψ."""
    number = types.sum(axis=-1)
    factor = np.where(types[:, 0], rho, 1) * np.where(types[:, 2], psi, 1)
    return lam**number * nu ** (3 - number) * factor


def falls(values):
    return bool(np.all(np.diff(values) < 0))


@pytest.fixture
def types():
    return np.array(list(TYPES.values()), dtype=bool)


def test_the_weight_of_an_image_is_that_of_the_loss(types):
    options = {"samples": IMAGES, "task": "multilabel", "beta": 0.9999999, "tau": 10.0}
    loss = PNBLoss(THREE, **options, mu=1.0, reduction="none")
    targets = torch.tensor(types, dtype=torch.float32)
    entries = loss(torch.zeros_like(targets), targets) / np.log(2)
    expected = weight(types, *alphas(THREE))
    assert entries.sum(dim=1).numpy() == pytest.approx(expected, rel=1e-5)


def test_the_table_of_the_notes_has_these_numbers(types):
    pos, neg = alphas(THREE)
    chance, ours = probability(types, THREE), weight(types, pos, neg)
    theirs = printed(types, pos.mean(), neg.mean(), pos[0] / pos[1], pos[2] / pos[1])
    part = chance * ours / (chance * ours).sum()
    for row, name in enumerate(TYPES):
        cells = (
            f"{100 * chance[row]:.2f} %",
            f"{chance[-1] / chance[row]:,.1f}",
            f"{theirs[row] / theirs[-1]:,.1f}",
            f"{ours[row] / ours[-1]:.1f}",
            f"{100 * part[row]:.1f} %",
        )
        (line,) = re.findall(rf"^\| {name}:.*\|$", NOTES, re.M)
        assert line.endswith("| " + " | ".join(cells) + " |")


def test_the_order_of_eq_6_is_the_reverse_of_the_probabilities(types):
    assert falls(weight(types, *alphas(THREE)))
    assert falls(-probability(types, THREE))


def test_the_order_fails_where_the_weights_are_smoothed_more(types):
    """At β = .9999 on all images D, with two findings, weighs less than E, with one."""
    ours = weight(types, *alphas(THREE, beta=0.9999, tau=1.0))
    assert ours[4] > ours[3]
    assert ours[0] / ours[-1] == pytest.approx(2.30, abs=0.005)


def test_the_coefficients_of_eq_7_need_a_rho_above_one_and_a_psi_below(types):
    pos, neg = alphas(THREE)
    assert falls(printed(types, pos.mean(), neg.mean(), pos[0] / pos[1], pos[2] / pos[1]))
    taken = printed(types, pos.mean(), neg.mean(), pos[0], pos[2])
    assert taken[2] < taken[3]
    assert taken[4] < taken[5]
    assert pos[0] > pos.mean()


def test_the_coefficients_of_eq_7_fall_where_rho_is_above_one_and_psi_below(types):
    rng = np.random.default_rng(0)
    for _ in range(200):
        nu, psi = np.sort(rng.uniform(0.01, 0.99, 2))
        rho, lam = np.sort(rng.uniform(1.01, 5.0, 2))
        assert falls(printed(types, lam, nu, rho, psi))


def test_over_all_types_of_nih_weights_span_a_factor_of_19_and_probabilities_20_decades():
    types = np.array(list(itertools.product([False, True], repeat=len(NIH))))
    chance, ours = probability(types, NIH), weight(types, *alphas(NIH))
    assert ours.max() / ours.min() == pytest.approx(19.3, abs=0.05)
    assert np.log10(chance.max() / chance.min()) == pytest.approx(20.4, abs=0.05)
    ranks = [np.argsort(np.argsort(values)) for values in (chance, ours)]
    assert np.corrcoef(*ranks)[0, 1] == pytest.approx(-0.976, abs=0.0005)


def test_images_with_findings_gain_what_images_without_lose():
    types = np.array(list(itertools.product([False, True], repeat=len(NIH))))
    chance, ours = probability(types, NIH), weight(types, *alphas(NIH))
    part = chance * ours / (chance * ours).sum()
    number = types.sum(axis=1)
    groups = [number == 0, number == 1, number == 2, number > 2]
    before = [round(100 * chance[group].sum(), 1) for group in groups]
    after = [round(100 * part[group].sum(), 1) for group in groups]
    assert before == [46.7, 37.5, 12.9, 2.9]
    assert after == [25.7, 43.6, 23.3, 7.4]
    for values in (before, after):
        assert ", ".join(map(str, values[:-1])) + f" and {values[-1]} %" in " ".join(NOTES.split())
