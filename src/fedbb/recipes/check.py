"""What a recipe's parts must agree on, told before anything is loaded."""

from __future__ import annotations

from fedbb._util.names import nearest
from fedbb.data.registry import find_entry
from fedbb.errors import RecipeError
from fedbb.methods import Method, build_method
from fedbb.models.registry import MODELS
from fedbb.partition.registry import KINDS
from fedbb.recipes.defense import check_crowd, check_defense, harden
from fedbb.recipes.privacy import check_privacy
from fedbb.recipes.spec import PartitionSpec, Recipe
from fedbb.records import Task


def check_recipe(recipe: Recipe) -> Method:
    """Return the recipe's method if its parts are known and suit each other.

    Under a robust rule that joins models itself, the method is the one with that merge.
    """
    method = build_method(recipe.method.name, recipe.method.options)
    task = find_entry(recipe.data.name).task
    if task is not None:
        check_task(method, task)
    if recipe.model.name not in MODELS:
        raise RecipeError(
            f"model.name {recipe.model.name!r} is unknown{nearest(recipe.model.name, MODELS)}"
        )
    if method.needs.projection and recipe.model.projection is False:
        raise RecipeError(f"model.projection = false does not suit {method.name}, which needs it")
    partition = recipe.data.partition
    takes = KINDS[partition.kind].takes if partition.kind in KINDS else ()
    if partition.min_samples is not None and "min_samples" not in takes:
        raise RecipeError(f"data.partition.min_samples has no meaning for {partition.kind}")
    if recipe.engine == "central" and partition != PartitionSpec():
        raise RecipeError(
            'data.partition has no place in engine = "central", which divides nothing'
        )
    check_defense(recipe)
    if partition.clients is not None:
        check_crowd(recipe, partition.clients)
    check_privacy(recipe, method)
    return harden(method, recipe.defense)


def check_task(method: Method, task: Task) -> None:
    """Refuse a method whose loss is not defined for this kind of labels."""
    if not method.loss.supports(task):
        raise RecipeError(f"{method.name} is not defined for {task} data")
