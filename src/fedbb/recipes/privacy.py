"""What privacy asks of a recipe and of the installation; needs no cryptography itself."""

from __future__ import annotations

from importlib.util import find_spec

from fedbb.errors import RecipeError
from fedbb.methods import Method
from fedbb.recipes.spec import Recipe
from fedbb.rounds.loop import chosen_number
from fedbb.secagg.contribution import check_linear
from fedbb.secagg.statistics import terms_of

FEWEST = 3
"""Of two clients, each would learn the other's part from the sum."""

EXTRAS = {
    "masked": {"cryptography": "private"},
    "bfv": {"cryptography": "private", "tenseal": "he"},
}
"""Modules that a kind of privacy needs, and the extra of fedbb that installs each."""


def check_privacy(recipe: Recipe, method: Method) -> None:
    """Refuse a private recipe whose method sums cannot serve, or that lacks a library."""
    if recipe.privacy == "none":
        return
    told = f'privacy = "{recipe.privacy}"'
    if recipe.engine == "central":
        raise RecipeError(f'{told} has no place in engine = "central", where one client holds all')
    need_libraries(recipe.privacy)
    check_linear(method.merge)
    if recipe.data.partition.clients is not None:
        check_members(recipe, method, recipe.data.partition.clients)


def need_libraries(privacy: str) -> None:
    """Say which extra a kind of privacy lacks."""
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


def least_cohort(recipe: Recipe, clients: int) -> int:
    """Return over how many clients a sum must be, by the quorum of the recipe."""
    chosen = chosen_number(clients, recipe.rounds.participation)
    return max(FEWEST, recipe.defense.required(chosen))
