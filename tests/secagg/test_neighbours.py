"""Neighbours of a sparse graph: the bounds against scipy, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fedbb.errors import PrivacyError, RecipeError
from fedbb.recipes.privacy import least_cohort, neighbourhood_of
from fedbb.recipes.reader import make_recipe
from fedbb.secagg.neighbours import (
    FAILED_BITS,
    MOST_ATTEMPTS,
    SEPARATED_BITS,
    Neighbourhood,
    choose_neighbourhood,
    failure_bits,
    hypergeometric_tail,
    separation_bits,
    tolerated_colluders,
)

PRIVACY = -SEPARATED_BITS - math.log2(MOST_ATTEMPTS)


@pytest.mark.parametrize("whole", [1, 7, 99, 999])
def test_the_hypergeometric_tail_is_scipys(whole: int) -> None:
    marked = np.arange(0, whole + 1, max(1, whole // 7))
    for drawn in {1, whole // 3 or 1, whole}:
        for least in range(drawn + 1):
            expected = stats.hypergeom.sf(least - 1, whole, marked, drawn)
            found = np.exp(hypergeometric_tail(whole, marked, drawn, least))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-300)


def separates(drawn: list[set[int]], honest: int, colluders: set[int], needed: int) -> bool:
    """Tell whether some group of at most half of the honest clients can be separated."""
    for size in range(1, honest // 2 + 1):
        for group in itertools.combinations(range(honest), size):
            inside = {*group, *colluders}
            if all(len(drawn[client] & inside) >= needed for client in group):
                return True
    return False


def test_the_bound_of_privacy_holds_in_a_simulation() -> None:
    """Every group of every draw is looked at: small graphs, where groups are often separated."""
    clients, colluding, graph = 8, 2, Neighbourhood(4, 3)
    honest, rng = clients - colluding, np.random.default_rng(0)
    colluders, draws = set(range(honest, clients)), 3000
    found = 0
    for _ in range(draws):
        drawn = [
            set(rng.permutation([k for k in range(clients) if k != client])[: graph.drawn].tolist())
            for client in range(honest)
        ]
        found += separates(drawn, honest, colluders, graph.needed)
    bound = 2.0 ** separation_bits(clients, colluding, graph)
    low = stats.binomtest(found, draws).proportion_ci(0.999).low
    assert found > 0
    assert low <= bound
    # The union bound counts groups that overlap more than once, but is not far off.
    assert bound < 4 * found / draws


def test_a_single_client_is_the_first_term_of_the_bound() -> None:
    """With two honest clients the only small group is one client, whose neighbours collude."""
    graph = Neighbourhood(3, 2)
    p = stats.hypergeom.sf(1, 5, 4, 3)  # 4 accomplices among the 5 others
    assert 2.0 ** separation_bits(6, 4, graph) == pytest.approx(2 * p)


def test_the_bound_of_dropouts_holds_in_a_simulation() -> None:
    clients, gone, graph = 20, 5, Neighbourhood(8, 5)
    rng, draws, failed = np.random.default_rng(1), 4000, 0
    for _ in range(draws):
        order = np.argsort(rng.random((clients, clients)) + 2 * np.eye(clients), axis=1)
        lost = (order[:, : graph.drawn] < gone).sum(axis=1)
        failed += bool((lost > graph.drawn - graph.needed).any())
    bound = 2.0 ** failure_bits(clients, gone, graph)
    assert failed > 0
    assert stats.binomtest(failed, draws).proportion_ci(0.999).low <= bound


@pytest.mark.parametrize("clients", [50, 100, 200, 1000])
def test_chosen_neighbours_keep_both_probabilities_small(clients: int) -> None:
    least, colluders = 2 * clients // 3 + 1, clients // 10
    graph = choose_neighbourhood(least, clients, colluders, 0.05)
    step = 1 if clients <= 200 else 37
    worst = max(
        separation_bits(cohort, colluders, graph) for cohort in range(least, clients + 1, step)
    )
    assert worst < PRIVACY
    assert failure_bits(clients, math.ceil(0.05 * clients), graph) < -FAILED_BITS
    fewer = Neighbourhood(graph.drawn - 1, graph.needed)
    assert (
        separation_bits(least, colluders, fewer) >= PRIVACY
        or failure_bits(clients, math.ceil(0.05 * clients), fewer) >= -FAILED_BITS
        or fewer.needed >= fewer.drawn
    )


def test_the_figures_of_the_documentation() -> None:
    """docs/privacy.md, "Many clients"."""
    found = [
        choose_neighbourhood(2 * clients // 3 + 1, clients, clients // 10, 0.05)
        for clients in (50, 100, 200, 500, 1000, 5000)
    ]
    numbers = [(graph.drawn, graph.needed) for graph in found]
    assert numbers == [(14, 11), (19, 14), (29, 20), (41, 28), (45, 31), (53, 36)]


@pytest.mark.parametrize(("clients", "colluders"), [(50, 5), (100, 10)])
def test_a_chosen_graph_tolerates_the_colluders_that_it_was_chosen_for(
    clients: int, colluders: int
) -> None:
    least = 2 * clients // 3 + 1
    graph = choose_neighbourhood(least, clients, colluders, 0.05)
    most = tolerated_colluders(least, clients, graph)
    assert most >= colluders
    cohorts = range(least, clients + 1)
    assert max(separation_bits(number, most, graph) for number in cohorts) < PRIVACY
    assert max(separation_bits(number, most + 1, graph) for number in cohorts) >= PRIVACY
    assert tolerated_colluders(least, clients, Neighbourhood(graph.drawn, 1)) == -1


def test_neighbours_grow_with_the_logarithm_of_the_clients() -> None:
    sizes = np.array([500, 1000, 2000, 4000])
    drawn = [choose_neighbourhood(2 * k // 3 + 1, k, k // 10, 0.05).drawn for k in sizes.tolist()]
    assert drawn[-1] < 1.3 * drawn[0]


def test_a_graph_that_would_not_be_sparse_is_refused() -> None:
    with pytest.raises(PrivacyError, match="a sparse graph saves nothing in sums over 34 to 50"):
        choose_neighbourhood(34, 50, 10, 0.1)


def private(**changes: object) -> dict[str, object]:
    return {
        "data": {"name": "digits"},
        "method": {"name": "fedbb"},
        "privacy": "masked",
        "secure": {"graph": "sparse"},
        **changes,
    }


def test_a_recipe_chooses_a_sparse_graph_for_its_least_cohort() -> None:
    recipe = make_recipe(private())
    assert least_cohort(recipe, 100) == 67
    assert neighbourhood_of(recipe, 100) == choose_neighbourhood(67, 100, 10, 0.05)
    assert neighbourhood_of(make_recipe(private(secure={})), 100) is None
    with pytest.raises(RecipeError, match="secure: a sparse graph saves nothing"):
        neighbourhood_of(recipe, 10)
