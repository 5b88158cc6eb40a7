"""Checks of `privacy = ...` in a recipe, and what server and clients agree on under it.

Nothing in here needs cryptography, so that a missing extra is reported instead of a failed import.
"""

from __future__ import annotations

import hashlib
import json
import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbb.aggregation.merging import average
from fedbb.errors import PrivacyError, RecipeError, RunError
from fedbb.methods import Method
from fedbb.recipes.spec import Recipe
from fedbb.records import LabelCounts, Visibility
from fedbb.rounds.loop import chosen_number
from fedbb.rounds.server_steps import measure_counts
from fedbb.secagg.cbr import Agreement, Bounds, check_linear, terms_of
from fedbb.secagg.dp import NoiseTerms
from fedbb.secagg.neighbours import Neighbourhood, SecureSums, choose_neighbourhood

if TYPE_CHECKING:
    from fedbb.secagg.protocol.roster import Roster

FEWEST = 3
"""The fewest clients of a sum: of two, each would learn the other's part from the sum."""

OPEN_RUN = "the run is open:"
"""Begins the note on what the server of an open run learns of a client's classes."""

OWN_MODELS = "all scores are means over the clients' own models:"
"""Begins the note on a run that has no model for all."""

FIXED_GROUP = (
    "Set defense.quorum = 1.0 and rounds.participation = 1.0, so that every sum is over all "
    "clients, or accept this with secure.reveal_class_counts = true"
)
"""How to keep sums by class from revealing the class counts of a client."""

SCORES_DIFFER = (
    "the difference of two sums of scores over changing groups reveals which classes a site's test "
    f"data has, and its scores. {FIXED_GROUP}"
)
"""Why sites of a private run do not score models in sums over changing groups."""

EXTRAS = {
    "masked": {"cryptography": "private"},
    "bfv": {"cryptography": "private", "tenseal": "he"},
}
"""The modules that a scheme needs, and the extra of fedbb that installs each."""


def check_privacy(recipe: Recipe, method: Method) -> None:
    """Refuse a private recipe with an unsupported method, or without the needed libraries."""
    check_dp(recipe, method)
    if recipe.privacy == "none":
        if recipe.secure != SecureSums():
            raise RecipeError('secure needs privacy = "masked" or "bfv": it is about secure sums')
        return
    if recipe.engine == "central":
        raise RecipeError(
            f'privacy = "{recipe.privacy}" is not possible with engine = "central", where one '
            "client holds all data"
        )
    need_libraries(recipe.privacy)
    check_linear(method.merge)
    check_parts(recipe.privacy, method)
    if not method.shares_model and recipe.data.own_test > 0:
        raise RecipeError(
            f'privacy = "{recipe.privacy}" and data.own_test exclude each other under '
            f"{method.name}: every client has {method.unshared} for itself, whose scores are not "
            "summed securely"
        )
    if recipe.data.partition.clients is not None:
        check_members(recipe, method, recipe.data.partition.clients)


def check_dp(recipe: Recipe, method: Method) -> None:
    """Refuse differential privacy where it would not cover what leaves a client."""
    if recipe.dp is None:
        return
    if recipe.privacy == "none":
        raise RecipeError(
            'dp needs privacy = "masked" or "bfv": the noise of a single client is too small to '
            "hide it, only a sum over the least cohort has enough"
        )
    compression = method.compression
    if compression is not None and not compression.hides_positions:
        raise RecipeError(
            f"dp is not possible with {type(compression).__name__} of {method.name} as it is: "
            "positions that are chosen by size reveal something about the data, whatever noise is "
            'on their values; method.options.positions = "drawn" chooses them without the data'
        )
    counts = LabelCounts(np.ones(2), np.ones(2), samples=2)
    if method.merge is not average or method.statistics or measure_counts(method, counts):
        raise RecipeError(
            f"dp is not possible with {method.name}: beside the changes of models it sums numbers "
            "about clients' data or steps, which no noise covers"
        )
    if not method.shares_model:
        raise RecipeError(
            f"dp is not possible with {method.name}: the noise would be added to "
            f"{method.unshared} too, which stays with the clients and begins as the server has it"
        )
    for is_set, key, what in (
        (recipe.evaluation.logit_adjustment, "evaluation.logit_adjustment", "label counts"),
        (recipe.data.normalize == "federated", 'data.normalize = "federated"', "inputs"),
    ):
        if is_set:
            raise RecipeError(
                f"dp and {key} exclude each other: no noise covers the sum of the clients' {what}"
            )


def exposure_notes(recipe: Recipe, method: Method) -> tuple[str, ...]:
    """Return what a user may not expect that a run reveals, or that its defense does not cover."""
    notes = [*own_model_notes(recipe, method)]
    counts = LabelCounts(np.ones(2), np.ones(2), samples=2)
    adjusts = bool(recipe.evaluation.logit_adjustment)
    is_open = recipe.privacy == "none" and recipe.engine != "central"
    shows = [type(one).__name__ for one in method.statistics if one.by_class]
    if is_open and measure_counts(method, counts, label_counts=adjusts):
        notes.append(
            f"{OPEN_RUN} on Flower the server sees each client's label counts; a private run shows "
            "only their sum"
        )
    elif is_open and shows:
        notes.append(
            f"{OPEN_RUN} {', '.join(shows)} shows the server which classes each client "
            "holds; a private run shows only sums"
        )
    if is_open and method.distillation is not None:
        notes.append(
            f"{OPEN_RUN} the server sees each client's outputs on public inputs, from which "
            "something of its data may be inferred"
        )
    summed = [type(one).__name__ for one in method.statistics if one.join == "sum"]
    if recipe.defense.rule is not None and summed:
        notes.append(
            f'defense.rule = "{recipe.defense.rule}" looks at models: a malicious client that it '
            f"keeps can falsify the sum of {', '.join(summed)}"
        )
    return tuple(notes)


def own_model_notes(recipe: Recipe, method: Method) -> tuple[str, ...]:
    """Return what a user must know of a run whose clients have models of their own."""
    notes: tuple[str, ...] = ()
    if not method.shares_model:
        notes = (
            f"{OWN_MODELS} under {method.name} every client "
            f"has {method.unshared} for itself, and the merged model alone cannot be used",
        )
    if recipe.model.by_client:
        names = ", ".join(one.name for one in recipe.model.networks)
        notes += (f"clients take different networks in turn: {names}; no model is exchanged",)
    own = None if method.personal is None else method.personal.second
    if own is not None and recipe.local.optimizer == "sgd" and recipe.local.lr * own.lam >= 1.0:
        notes += (
            f"lam {own.lam:g} times local.lr {recipe.local.lr:g} is "
            f"{recipe.local.lr * own.lam:g}: from 1 on a step overshoots what it is pulled to",
        )
    return notes


def check_parts(privacy: str, method: Method) -> None:
    """Refuse a method with a part for which sums do not suffice, by its name."""
    part = method.needs_to_see(Visibility.SUMS)
    if part is not None:
        raise RecipeError(
            f'privacy = "{privacy}" reveals only sums over clients, and {part} of {method.name} '
            "needs the figures of single clients"
        )


def need_libraries(privacy: str) -> None:
    """Report the extra that a scheme needs if it is not installed."""
    missing = {module: extra for module, extra in EXTRAS[privacy].items() if not find_spec(module)}
    if missing:
        extras = ",".join(dict.fromkeys(missing.values()))
        raise RecipeError(
            f'privacy = "{privacy}" needs {" and ".join(missing)}, which is not installed; '
            f'pip install "fedbb[{extras}]"'
        )


def check_members(recipe: Recipe, method: Method, clients: int) -> None:
    """Refuse a private recipe with too few clients in a round."""
    chosen = chosen_number(clients, recipe.rounds.participation)
    if chosen < FEWEST:
        raise RecipeError(
            f'privacy = "{recipe.privacy}" needs {FEWEST} clients in a round and {chosen} take '
            "part: of two, each would learn the other's part from the sum"
        )
    terms_of(method.weighting, clients)
    neighbourhood_of(recipe, clients)
    shows = [type(one).__name__ for one in method.statistics if one.by_class]
    if shows and may_difference(recipe, clients):
        raise RecipeError(
            f"{', '.join(shows)} of {method.name} sums numbers by class in each round, and a round "
            f"may sum {least_cohort(recipe, clients)} to {clients} clients: the difference of two "
            f"sums reveals a client's class counts. {FIXED_GROUP}"
        )


def may_difference(recipe: Recipe, clients: int) -> bool:
    """Tell whether sums by class over changing groups of clients are possible and not allowed."""
    allowed = recipe.secure.reveal_class_counts
    return not allowed and least_cohort(recipe, clients) < clients


def neighbourhood_of(recipe: Recipe, clients: int) -> Neighbourhood | None:
    """Return how many neighbours share a client's secrets; None if all clients of a sum do."""
    secure = recipe.secure
    if secure.graph == "complete":
        return None
    chosen = chosen_number(clients, recipe.rounds.participation)
    colluders = math.floor(secure.colluders * chosen)
    try:
        least = least_cohort(recipe, clients)
        return choose_neighbourhood(least, clients, colluders, secure.dropouts)
    except PrivacyError as error:
        raise RecipeError(f"secure: {error}") from error


def least_cohort(recipe: Recipe, clients: int) -> int:
    """Return the smallest cohort of a sum, which is signed with the roster.

    At least two thirds of the clients that a round of the recipe chooses, and its quorum. The
    server chooses the cohort of each sum: of three clients out of five it would need only two
    accomplices.

    Args:
        recipe: its participation and quorum count.
        clients: how many clients are enrolled.

    Returns:
        The fewest clients of a cohort, and the fewest that must stay to the end.
    """
    chosen = chosen_number(clients, recipe.rounds.participation)
    return max(FEWEST, 2 * chosen // 3 + 1, recipe.defense.required(chosen))


def agreement_of(recipe: Recipe, method: Method, clients: int) -> Agreement:
    """Return what the clients of a recipe agree on with the server."""
    defense = recipe.defense
    terms = terms_of(method.weighting, clients)
    bounds = Bounds(defense.max_weight, defense.max_norm)
    return Agreement(
        terms,
        method.merge,
        bounds,
        recipe_digest(recipe),
        recipe.rounds.number,
        noise_terms(recipe, clients),
        neighbourhood_of(recipe, clients),
    )


def noise_terms(recipe: Recipe, clients: int) -> NoiseTerms | None:
    """Return how changes are clipped and noised; None without differential privacy."""
    dp = recipe.dp
    if dp is None:
        return None
    return NoiseTerms(
        clip=dp.clip,
        sensitivity=dp.clip * recipe.defense.max_weight,
        multiplier=dp.noise,
        least=least_cohort(recipe, clients),
        delta=dp.delta,
        rate=chosen_number(clients, recipe.rounds.participation) / clients,
    )


def recipe_digest(recipe: Recipe) -> str:
    """Return the SHA-256 of a recipe as far as results depend on it.

    It covers the method with its options (γ), local training, the seed and the rounds. Only where
    clients run is left out.
    """
    return hashlib.sha256(recipe.decisive.model_dump_json().encode()).hexdigest()


def agreed_digest(recipe: Recipe) -> str:
    """Return the SHA-256 of what sites agree to: a recipe without its name and the paths of data.

    A path differs between machines, and the name is of the run. Both are part of the view of a sum.
    """
    content = recipe.decisive.model_dump(mode="json", exclude={"name"})
    for section in (content["data"], content["data"]["partition"]):
        section.pop("path", None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def roster_terms(recipe: Recipe, method: Method, clients: int) -> dict[str, Any]:
    """Return the terms of a roster: least cohort, R_min, w_max, and the recipe agreed to."""
    agreement = agreement_of(recipe, method, clients)
    graph = agreement.graph
    return {
        "least": least_cohort(recipe, clients),
        "least_dispersion": float(agreement.terms.floor),
        "max_weight": float(agreement.bounds.max_weight),
        "privacy": recipe.privacy,
        "method": recipe.method.name,
        "gamma": float(agreement.terms.gamma),
        "recipe": agreed_digest(recipe),
        "neighbours": 0 if graph is None else graph.drawn,
        "neighbours_needed": 0 if graph is None else graph.needed,
    }


def agree(roster: Roster, recipe: Recipe, method: Method) -> Agreement:
    """Return what server and clients agree on; refuse a recipe with other terms than the roster.

    Args:
        roster: the roster that the sites have pinned.
        recipe: the recipe of a run.
        method: the method of the recipe.

    Returns:
        The agreement.

    Raises:
        RunError: if the recipe and the roster name other clients or other terms.
    """
    clients = len(roster.members)
    divided = recipe.data.partition.clients
    if sorted(roster.members) != list(range(clients)) or divided not in (None, clients):
        raise RunError(
            f"the recipe divides the data among {divided or 'any'} clients from 0, and the roster "
            f"names {', '.join(str(client) for client in sorted(roster.members))}"
        )
    check_members(recipe, method, clients)
    differing = [
        f"{name} is {getattr(roster, name)} in the roster and {value} in the recipe"
        for name, value in roster_terms(recipe, method, clients).items()
        if getattr(roster, name) != value
    ]
    if differing:
        raise RunError(
            f"the roster was signed with other terms: {'; '.join(differing)}. Change the recipe, "
            "or delete roster.json at the server and at every site, and enrol them again"
        )
    return agreement_of(recipe, method, clients)
