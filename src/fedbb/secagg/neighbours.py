"""Sparse masked sums: how many neighbours a client needs, and the odds that this does not suffice.

In a complete graph every client shares a mask with every other one, and its secrets are divided
among all. The work of a sum grows with K². In a sparse graph (Bell, Bonawitz, Gascón, Lepoint and
Raykova, CCS 2020) each client draws k neighbours of its own by its own random bytes in each
attempt. It divides its secrets among these k, of whom t recover them, and shares a mask with them
and with those that drew it. No message of the server has an influence on what a client draws.

**Privacy.** Let n clients take part, of whom c collude with a server that sends false messages and
chooses after the draw who drops out. All honest clients unmask one list of survivors (their
signatures on it are counted over all of n, see `Roster.needed`). A sum over a group S of honest
survivors is separated from the others only if no mask leads out of S, and the self mask of each of
its clients can be removed: at least t of the k neighbours that it drew are in S or collude. Clients
draw independently, so that for one S of s clients this has the probability p(s)^s, where p(s) is
the probability that of k clients, drawn from n−1, at least t are among s−1+c. Over all groups of at
most half of the n−c honest clients:

    P(some group is separated) ≤ Σ_{s ≤ (n−c)/2} C(n−c, s) · p(s)^s

If none is, one sum at most is revealed, and it is over more than half of the honest clients. The
term s = 1 is that of a client whose secrets t accomplices know.

**Dropouts.** A sum cannot be unmasked if a client lost more than k−t of its neighbours. If d of n
clients drop out regardless of the draws, P(no sum) ≤ n · P(of k drawn from n−1, more than k−t are
among d). Nothing is revealed then, and the round is repeated.

Nothing in here needs cryptography.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from fedbb._util.constraints import STRICT_TABLE
from fedbb.errors import PrivacyError
from fedbb.records import FloatArray, IntArray

MOST_ATTEMPTS = 100
"""Attempts at a sum over a sparse graph that a client begins: each is another draw of the graph."""

SEPARATED_BITS = 40
"""Over all attempts at a sum, a group is separated with a probability below 2 to the minus this."""

FAILED_BITS = 20
"""An attempt cannot be unmasked with a probability below 2 to the minus this."""

SmallFraction = Annotated[float, Ge(0), Le(0.3)]


@dataclass(frozen=True)
class SecureSums:
    """How secure sums are made: the section `secure` of a recipe, which sites agree to.

    Attributes:
        graph: With whom a client shares masks and secrets: "complete", with every other client of
            a sum, or "sparse", with some that it draws; for 50 clients and more.
        colluders: Share of the clients of a round that may collude with the server; the number of
            neighbours in a sparse graph follows from it.
        dropouts: Share of them that may drop out at random; likewise.
        reveal_class_counts: Allow statistics by class over changing groups of clients, from whose
            differences the server can compute the class counts of a single client.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    graph: Literal["complete", "sparse"] = "complete"
    colluders: SmallFraction = 0.1
    dropouts: SmallFraction = 0.05
    reveal_class_counts: bool = False


@dataclass(frozen=True)
class Neighbourhood:
    """A sparse graph: how many neighbours a client draws, and how many recover its secrets.

    Args:
        drawn: the neighbours that a client draws (k).
        needed: how many of them recover its secrets (t).
    """

    drawn: int
    needed: int


@lru_cache(maxsize=64)
def choose_neighbourhood(least: int, most: int, colluders: int, dropouts: float) -> Neighbourhood:
    """Return the fewest neighbours for which both probabilities are small enough.

    Args:
        least: the smallest cohort, of which the colluders are the largest share.
        most: the largest cohort, where the bound of dropouts is the weakest.
        colluders: how many clients may collude with the server.
        dropouts: the share of a cohort that may drop out at random.

    Returns:
        The sparse graph.

    Raises:
        PrivacyError: if a client would have about as many neighbours as there are clients.
    """
    gone = math.ceil(dropouts * most)
    for drawn in range(3, (least - 1) // 2):
        needed = _most_needed(most, gone, drawn)
        found = Neighbourhood(drawn, needed)
        if 2 * needed > drawn and _is_private(least, most, colluders, found):
            return found
    raise PrivacyError(
        f"a sparse graph saves nothing in sums over {least} to {most} clients of which {colluders} "
        f"may collude and {dropouts:.0%} drop out: a client would need more than "
        f'{(least - 1) // 2} neighbours. Use graph = "complete", or lower colluders or dropouts'
    )


def tolerated_colluders(least: int, most: int, graph: Neighbourhood) -> int:
    """Return how many clients may collude with the server before a group may be separated.

    Args:
        least: the smallest cohort.
        most: the largest cohort.
        graph: how many neighbours each client draws, and how many recover its secrets.

    Returns:
        The most colluders for which the probability is small enough; −1 if it never is.
    """
    colluders = 0
    while colluders < least and _is_private(least, most, colluders, graph):
        colluders += 1
    return colluders - 1


def separation_bits(clients: int, colluders: int, graph: Neighbourhood) -> float:
    """Return log2 of the bound that a group of at most half of the honest clients is separated.

    Args:
        clients: the clients of a sum (n).
        colluders: how many of them collude with the server (c).
        graph: how many neighbours each draws, and how many recover its secrets.
    """
    honest = clients - colluders
    sizes = np.arange(1, honest // 2 + 1)
    reached = hypergeometric_tail(
        clients - 1, np.minimum(sizes - 1 + colluders, clients - 1), graph.drawn, graph.needed
    )
    return _sum_bits(_log_binomial(np.full_like(sizes, honest), sizes) + sizes * reached)


def failure_bits(clients: int, dropouts: int, graph: Neighbourhood) -> float:
    """Return log2 of the bound that an attempt with random dropouts cannot be unmasked."""
    lost = graph.drawn - graph.needed + 1
    tail = hypergeometric_tail(clients - 1, np.array([dropouts]), graph.drawn, lost)
    return _sum_bits(tail + math.log(clients))


def hypergeometric_tail(whole: int, marked: IntArray, drawn: int, least: int) -> FloatArray:
    """Return ln P(at least `least` of `drawn` are marked), drawn from `whole` without replacement.

    >>> np.exp(hypergeometric_tail(4, np.array([2]), 2, 1)).round(9)  # all but 1 of 6 pairs
    array([0.83333333])
    """
    marked, hits = marked[:, None], np.arange(least, drawn + 1)[None, :]
    ways = _log_binomial(marked, hits) + _log_binomial(whole - marked, drawn - hits)
    every = float(_log_binomial(np.array(whole), np.array(drawn)))
    top = ways.max(axis=1, initial=-np.inf)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        tail = finite + np.log(np.exp(ways - finite[:, None]).sum(axis=1)) - every
    return np.asarray(np.minimum(tail, 0.0))


def _is_private(least: int, most: int, colluders: int, graph: Neighbourhood) -> bool:
    """Tell whether a group is separated seldom enough, over all attempts and in every cohort."""
    privacy = -SEPARATED_BITS - math.log2(MOST_ATTEMPTS)
    return all(
        separation_bits(clients, colluders, graph) < privacy for clients in _sizes(least, most)
    )


def _sizes(least: int, most: int) -> list[int]:
    """Return cohorts at which privacy is checked: it is weakest at the least one or the next one.

    Half of an odd number of honest clients is rounded down, so that odd and even ones differ.
    """
    return sorted({least, min(least + 1, most), (least + most) // 2, most})


def _most_needed(clients: int, gone: int, drawn: int) -> int:
    """Return the largest threshold for which random dropouts seldom end an attempt."""
    needed = drawn
    while needed > 0:
        if failure_bits(clients, gone, Neighbourhood(drawn, needed)) < -FAILED_BITS:
            break
        needed -= 1
    return needed


def _log_binomial(whole: IntArray, part: IntArray) -> FloatArray:
    """Return ln C(whole, part), minus infinity where the coefficient is 0."""
    whole, part = np.broadcast_arrays(whole, part)
    possible = (part >= 0) & (part <= whole)
    table = _log_factorials(int(max(whole.max(initial=0), 0)))
    inside = np.where(possible, part, 0)
    outside = np.where(possible, whole, 0)
    found = table[outside] - table[inside] - table[outside - inside]
    return np.asarray(np.where(possible, found, -np.inf))


@lru_cache(maxsize=64)
def _log_factorials(most: int) -> FloatArray:
    return np.array([math.lgamma(number + 1) for number in range(most + 1)])


def _sum_bits(logs: FloatArray) -> float:
    """Return log2 of the sum of numbers that are given by their natural logarithms."""
    top = float(logs.max(initial=-np.inf))
    if math.isinf(top):
        return -math.inf
    return (top + math.log(float(np.exp(logs - top).sum()))) / math.log(2)
