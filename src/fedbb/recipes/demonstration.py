"""The runs of the demo: two data sets, three methods, several seeds."""

from __future__ import annotations

import tomllib
from importlib import resources

from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe

DATA = ("digits", "digit-mosaic")
METHODS = ("fedavg", "fedavg-scaled", "fedbb")


def demo_recipes(seeds: int) -> list[Recipe]:
    """Return the recipes of the demo, the seeds of one method beside each other."""
    folder = resources.files("fedbb.recipes") / "demo"
    recipes = []
    for data in DATA:
        values = tomllib.loads((folder / f"{data}.toml").read_text(encoding="utf-8"))
        for method in METHODS:
            for seed in range(seeds):
                name = f"{data}-{method}-seed{seed}"
                chosen = {**values, "name": name, "seed": seed, "method": {"name": method}}
                recipes.append(make_recipe(chosen, f"demo recipe {name}"))
    return recipes
