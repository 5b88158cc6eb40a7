"""What a robust rule asks of a recipe: a method it suits, liars to withstand, enough clients."""

from __future__ import annotations

from dataclasses import replace

from fedbb.aggregation.merging import average
from fedbb.aggregation.robust import Krum, TrimmedMean, Uniform, coordinate_median
from fedbb.errors import RecipeError
from fedbb.methods import Method
from fedbb.recipes.spec import DefenseSpec, Recipe
from fedbb.rounds.loop import chosen_number


def check_defense(recipe: Recipe) -> None:
    """Refuse a defense that contradicts itself, or the rest of the recipe."""
    defense = recipe.defense
    told = f'defense.rule = "{defense.rule}"'
    if defense.rule is None:
        if defense.byzantine:
            raise RecipeError("defense.byzantine needs a defense.rule that withstands liars")
        return
    if recipe.engine == "central":
        raise RecipeError(f'{told} has no place in engine = "central", which merges nothing')
    if recipe.privacy != "none":
        raise RecipeError(
            f'{told} and privacy = "{recipe.privacy}" exclude each other: the rule has to see '
            "every client's model, and a masked sum shows none"
        )
    if defense.rule == "clip":
        if defense.max_norm is None:
            raise RecipeError(f"{told} needs defense.max_norm, to which it clips")
        if defense.byzantine:
            raise RecipeError(f"{told} bounds every client alike; defense.byzantine has no meaning")
    elif defense.byzantine == 0:
        raise RecipeError(f"{told} needs defense.byzantine, how many liars it is to withstand")


def check_crowd(recipe: Recipe, clients: int) -> None:
    """Refuse a rule whose promise does not hold with so many clients."""
    defense = recipe.defense
    chosen = chosen_number(clients, recipe.rounds.participation)
    least = least_answers(defense)
    if defense.rule is not None and chosen < least:
        raise RecipeError(
            f'defense.rule = "{defense.rule}" needs {least} clients in a round to withstand '
            f"{defense.byzantine}, and {chosen} train"
        )


def least_answers(defense: DefenseSpec) -> int:
    """Return with how many clients in a round the rule's promise holds."""
    if defense.rule in ("krum", "multi-krum"):
        return Krum(defense.byzantine).least
    if defense.rule in ("median", "trimmed-mean"):
        return 2 * defense.byzantine + 1
    return 1


def harden(method: Method, defense: DefenseSpec) -> Method:
    """Return the method with its merge replaced, if the rule is one that joins models itself."""
    if defense.rule not in ("median", "trimmed-mean"):
        return method
    if method.merge is not average:
        raise RecipeError(
            f'defense.rule = "{defense.rule}" replaces the average of models, and {method.name} '
            'joins them in a way of its own; "clip", "krum" and "multi-krum" leave that way be'
        )
    if defense.rule == "median":
        return replace(method, merge=coordinate_median, weighting=Uniform())
    return replace(method, merge=TrimmedMean(defense.byzantine))
