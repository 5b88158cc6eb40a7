"""Every figure of an inspection against its definition, loop by loop, on random tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.analysis.inspect import ClientAssignment, count_shared, inspect
from fedbb.analysis.measures import Settings
from fedbb.imbalance import READINGS
from reference import inspection as slow


@st.composite
def tables(draw):
    """Return rows of 1, 0 and None, the client of each row, and a patient of each row."""
    classes = draw(st.integers(1, 5))
    marks = st.sampled_from([1, 0, 0, None])
    rows = draw(st.lists(st.lists(marks, min_size=classes, max_size=classes), min_size=1))
    owners = draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    patients = draw(st.lists(st.integers(0, 6), min_size=len(rows), max_size=len(rows)))
    return rows, owners, patients


smoothing = st.tuples(st.floats(0.1, 0.999), st.floats(0.5, 20.0))


def look(rows, owners, beta=0.9, tau=1.0, gamma=1.0):
    labels = np.array([[np.nan if mark is None else mark for mark in row] for row in rows])
    found = inspect(labels, owners, settings=Settings(beta=beta, tau=tau, gamma=gamma))
    place = {int(name): number for number, name in enumerate(found.statistics.clients)}
    return found, [place[owner] for owner in owners]


@given(tables())
def test_counts_mixes_and_distances_are_those_of_the_loops(table):
    rows, owners, _ = table
    found, owners = look(rows, owners)
    clients, classes = found.statistics.positive.shape
    positive, negative = slow.counts(rows, owners, clients, classes)
    assert found.statistics.positive.tolist() == positive
    assert found.statistics.negative.tolist() == negative
    whole = slow.mix(rows, classes)
    for client in range(clients):
        own = slow.mix([row for row, at in zip(rows, owners, strict=True) if at == client], classes)
        assert found.statistics.mixes[client] == pytest.approx(own)
        assert found.clients.distance[client] == pytest.approx(slow.distance(own, whole), abs=1e-12)
        assert found.clients.samples[client] == owners.count(client)


@given(tables(), smoothing)
def test_alphas_and_parts_of_the_loss_are_those_of_the_loops(table, numbers):
    rows, owners, _ = table
    found, owners = look(rows, owners, *numbers)
    cases = found.cases
    alphas = [
        slow.alpha(a, b, *numbers) for a, b in zip(cases.positive, cases.negative, strict=True)
    ]
    assert cases.alpha_positive == pytest.approx(alphas)
    assert cases.effective_positive == pytest.approx(
        [slow.effective(count, *numbers) for count in cases.positive]
    )
    stages = slow.loss_shares(cases.positive, cases.negative, alphas)
    for ours, theirs in zip((cases.raw, cases.cased, cases.classed), stages, strict=True):
        assert ours == pytest.approx(np.array(theirs), abs=1e-9)


@given(tables())
def test_figures_of_classes_and_their_sets_are_those_of_the_loops(table):
    rows, owners, _ = table
    found, _ = look(rows, owners)
    classes, positive = found.classes, found.cases.positive.tolist()
    total = sum(positive)
    shares = [count / total if total else 0.0 for count in positive]
    assert classes.shares == pytest.approx(shares)
    assert classes.gini == pytest.approx(slow.gini(positive), abs=1e-12)
    assert classes.entropy == pytest.approx(slow.entropy(shares), abs=1e-12)
    sets = slow.label_sets(rows)
    assert classes.sets.seen == len(sets)
    assert classes.sets.rare == sum(size < 10 for size in sets.values())
    assert classes.sets.rare_samples == sum(size for size in sets.values() if size < 10)
    listed = {frozenset(map(int, each.classes)): each.samples for each in classes.sets.largest}
    assert listed.items() <= sets.items()
    assert found.statistics.together.tolist() == slow.together(rows, len(rows[0]))


@given(tables(), st.floats(0, 1))
def test_dispersions_and_weights_are_those_of_the_loops(table, gamma):
    rows, owners, _ = table
    found, _ = look(rows, owners, gamma=gamma)
    tally, clients = found.statistics, found.clients
    for reading in READINGS:
        spreads = [
            slow.spread(a, b, reading)
            for a, b in zip(tally.positive, tally.negative, strict=True)
            if (a + b).any()
        ]
        known = (tally.positive + tally.negative).any(axis=1)
        assert clients.dispersions[reading][known] == pytest.approx(spreads, abs=1e-12)
        raised = np.maximum(clients.dispersions[reading], 1e-3)
        even, size = 1 / raised, tally.samples
        expected = gamma * even / even.sum() + (1 - gamma) * size / size.sum()
        assert clients.weights[reading] == pytest.approx(expected)
        assert clients.effective[reading] == pytest.approx(1 / (expected**2).sum())
    assert clients.by_size == pytest.approx(tally.samples / tally.samples.sum())


@given(tables())
def test_patients_on_several_clients_are_counted_as_by_the_loops(table):
    _, owners, patients = table
    holders = ClientAssignment(("a", "b", "c", "d"), np.array(owners), np.array(patients))
    assert count_shared(holders).tolist() == slow.shared_patients(patients, owners, 4)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1), smoothing)
def test_multiclass_figures_are_those_of_the_loops(pairs, numbers):
    labels, owners = [label for label, _ in pairs], [owner for _, owner in pairs]
    found = inspect(labels, owners, settings=Settings(*numbers))
    classes = max(labels) + 1
    rows = [[int(label == place) for place in range(classes)] for label in labels]
    place = {int(name): number for number, name in enumerate(found.statistics.clients)}
    owners = [place[owner] for owner in owners]
    positive, negative = slow.counts(rows, owners, len(place), classes)
    assert found.statistics.positive.tolist() == positive
    assert found.statistics.negative.tolist() == negative
    whole = slow.mix(rows, classes)
    for client in range(len(place)):
        own = slow.mix([row for row, at in zip(rows, owners, strict=True) if at == client], classes)
        assert found.clients.distance[client] == pytest.approx(slow.distance(own, whole), abs=1e-12)
        loss = [
            slow.alpha(a, b, *numbers) * a
            for a, b in zip(positive[client], negative[client], strict=True)
        ]
        assert found.clients.loss_weight[client] == pytest.approx(
            4 * sum(loss) / sum(positive[client])
        )
    weighed = [
        slow.alpha(a, b, *numbers) * a
        for a, b in zip(found.cases.positive, found.cases.negative, strict=True)
    ]
    total = sum(weighed)
    assert found.cases.classed[0] == pytest.approx([w / total if total else w for w in weighed])
    assert not found.cases.classed[1].any()
