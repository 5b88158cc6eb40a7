import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.robust import Krum
from fedbb.aggregation.validation import update_norm
from fedbb.records import ClientFailure
from fedbb.rounds.policy import (
    ClipFilter,
    KrumFilter,
    RoundPolicy,
    RoundReplies,
    ValidUpdates,
    accept_all,
)
from helpers.states import models, state, update

KRUM = KrumFilter(Krum(1))
MULTI_KRUM = KrumFilter(Krum(1, many=True))


@pytest.mark.parametrize(
    ("defense", "minimum", "validate", "select"),
    [
        ({}, 1, accept_all, accept_all),
        ({"quorum": 0.9, "max_weight": 0.3}, 1, accept_all, accept_all),
        ({"max_norm": 3.0}, 1, ValidUpdates(3.0), accept_all),
        ({"rule": "clip", "max_norm": 0.2}, 1, ValidUpdates(), ClipFilter(0.2)),
        ({"rule": "median", "byzantine": 1}, 3, ValidUpdates(), accept_all),
        ({"rule": "median", "byzantine": 1, "max_norm": 2.0}, 3, ValidUpdates(2.0), accept_all),
        ({"rule": "trimmed-mean", "byzantine": 2}, 5, ValidUpdates(), accept_all),
        ({"rule": "krum", "byzantine": 1}, 5, ValidUpdates(), KRUM),
        ({"rule": "multi-krum", "byzantine": 1}, 5, ValidUpdates(), MULTI_KRUM),
    ],
)
def test_filters_and_minimum_follow_from_the_defense(defense, minimum, validate, select):
    policy = RoundPolicy(**defense)
    assert policy.min_updates == minimum
    assert policy.validate == validate
    assert policy.select == select


START = state([0.0, 0.0, 0.0])


def replies(sent):
    return RoundReplies(
        tuple(each.client for each in sent), iter(sent), (ClientFailure(99, "no answer"),)
    )


def reasons(found):
    return {failure.client: failure.reason for failure in found.failures}


def test_unsound_models_are_left_out_by_name_and_the_rest_stays_in_order():
    sent = [
        update(4, [1, 1, 1]),
        update(2, [np.nan, 1, 1]),
        update(3, [1, 2, 1], variance=-1.0),
        update(0, [8, 8, 8]),
        update(1, [2, 2, 1]),
    ]
    found = ValidUpdates(max_norm=5.0)(START, replies(sent))
    assert found.clients == (4, 1)
    assert [each.client for each in found.updates] == [4, 1]
    told = reasons(found)
    assert list(told) == [99, 2, 3, 0]
    assert "not finite" in told[2]
    assert "negative variance" in told[3]
    assert "is 16, and 5 is allowed" in told[0]


def test_sound_models_all_pass_without_a_bound():
    sent = [update(client, [1e30, 0, 0]) for client in range(3)]
    assert ValidUpdates()(START, replies(sent)).clients == (0, 1, 2)


def test_krum_leaves_out_by_name_with_the_distances():
    sent = [update(client, [client / 10, 0, 0]) for client in range(4)] + [update(4, [9, 9, 9])]
    found = KrumFilter(Krum(1, many=True))(START, replies(sent))
    assert found.clients == (0, 1, 2, 3)
    assert reasons(found)[99] == "no answer"
    assert reasons(found)[4].startswith("left out by multi-krum: ")
    assert reasons(found)[4].count("from its nearest, those kept at most") == 1
    alone = KrumFilter(Krum(1))(START, replies(sent))
    assert len(alone.clients) == 1
    assert set(reasons(alone)) | set(alone.clients) == {0, 1, 2, 3, 4, 99}


@given(models(7), st.permutations(range(7)))
def test_whom_krum_keeps_does_not_depend_on_the_order(values, order):
    sent = [update(client, each) for client, each in enumerate(values)]
    for rule in (Krum(2), Krum(2, many=True)):
        straight = KrumFilter(rule)(START, replies(sent))
        turned = KrumFilter(rule)(START, replies([sent[place] for place in order]))
        assert set(straight.clients) == set(turned.clients)
        assert reasons(straight) == reasons(turned)
        assert [client for client in order if client in straight.clients] == list(turned.clients)


def test_clipping_keeps_everybody_and_works_as_updates_come():
    taken = []

    def coming():
        for client, size in enumerate((1.0, 100.0)):
            taken.append(client)
            yield update(client, [size, 0, 0])

    found = ClipFilter(3.0)(START, RoundReplies((0, 1), coming()))
    assert taken == []
    first, second = found.updates
    assert update_norm(START, first.state) == pytest.approx(np.sqrt(2.0))
    assert update_norm(START, second.state) == pytest.approx(3.0)
    assert (second.steps, second.effective_steps, second.train_loss) == (3, 3.0, 0.5)
    assert found.failures == ()
