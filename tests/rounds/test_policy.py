"""What a round does by its policy: which filters it has, and how many updates it needs."""

import pytest

from fedbb.aggregation.robust import Krum
from fedbb.rounds.filters import ClipFilter, KrumFilter, ValidUpdates, accept_all
from fedbb.rounds.policy import RoundPolicy

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
