import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.secagg.leakage import solve_weights


def test_two_groups_that_differ_in_one_client_tell_its_weight_and_no_others():
    assert solve_weights([(0, 1, 2), (1, 2)], [1.0, 0.7], 3) == {0: pytest.approx(0.3)}


def test_one_group_tells_nobodys_weight_however_often_it_is_summed():
    assert solve_weights([(0, 1, 2, 3)] * 9, [1.0] * 9, 4) == {}


@given(st.integers(3, 8), st.integers(0, 12), st.integers(0, 1000))
def test_only_true_weights_are_found(clients, rounds, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(clients))
    groups = [np.flatnonzero(rng.random(clients) < 0.6).tolist() for _ in range(rounds)]
    sums = [weights[group].sum() for group in groups]
    for client, weight in solve_weights([*groups, range(clients)], [*sums, 1.0], clients).items():
        assert weight == pytest.approx(weights[client], abs=1e-9)
