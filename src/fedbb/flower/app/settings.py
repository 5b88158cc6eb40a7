"""What a run and a site are told through Flower: flat settings, checked where they come in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedbb.errors import RecipeError, RunError
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe

Scalar = bool | int | float | str
Scoring = Literal["server", "sites"]


@dataclass(frozen=True)
class RunSettings:
    """The run config: a recipe, where the server keeps the run, who scores, how long it waits.

    `sites` is how many sites there are if the recipe's partition does not say, 0 for those that
    are connected when the run begins. `keys` is the folder of the server's keys in private runs.
    """

    recipe: Recipe
    folder: Path
    resume: bool = False
    score: Scoring = "server"
    wait: float = 300.0
    sites: int = 0
    keys: Path | None = None


@dataclass(frozen=True)
class SiteSettings:
    """The node config: which client of the recipe a site is, where its data and memories lie.

    With `whole` all training data at that path is this site's own; else the recipe's partition is
    applied, and the site takes its part of it. `keys` is the folder of its identity and roster for
    private runs; with `private` it takes part in no others.
    """

    client: int
    data: str | None = None
    whole: bool = False
    state: Path | None = None
    keys: Path | None = None
    private: bool = False


def read_run_settings(config: Mapping[str, Scalar]) -> RunSettings:
    """Return the settings in a run config."""
    values = _Values("run config", config)
    folder = values.text("folder")
    if not folder:
        raise RunError("run config: folder is missing; it is where the server keeps the run")
    score = values.text("score") or "server"
    if score not in ("server", "sites"):
        raise RunError(f'run config: score is {score!r}; it must be "server" or "sites"')
    wait = values.number("wait", 300.0)
    sites = values.whole_number("sites", 0)
    if not (math.isfinite(wait) and wait >= 0 and sites >= 0):
        raise RunError("run config: wait and sites must be finite numbers of at least 0")
    return RunSettings(
        recipe=read_recipe_text(values.text("recipe")),
        folder=Path(folder),
        resume=values.switch("resume"),
        score="server" if score == "server" else "sites",
        wait=wait,
        sites=sites,
        keys=values.path("keys"),
    )


def read_recipe_text(text: str) -> Recipe:
    """Return the recipe that a run config carries as JSON."""
    if not text:
        raise RecipeError("run config: recipe is missing; it is the whole recipe as JSON")
    try:
        values = json.loads(text)
    except ValueError as error:
        raise RecipeError(f"run config: recipe is no valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise RecipeError("run config: recipe must be a table of settings")
    return make_recipe(values, where="run config: recipe")


def read_site_settings(config: Mapping[str, Scalar]) -> SiteSettings:
    """Return the settings in a node config."""
    values = _Values("node config", config)
    client = values.whole_number("client", None)
    if client < 0:
        raise RunError(f"node config: client is {client}; sites are numbered from 0")
    return SiteSettings(
        client=client,
        data=values.text("data") or None,
        whole=values.switch("whole"),
        state=values.path("state"),
        keys=values.path("keys"),
        private=values.switch("private"),
    )


@dataclass(frozen=True)
class _Values:
    """Flower's flat settings, each asked for by its type.

    A node's settings are for every app that runs there, so those of others are let be.
    """

    where: str
    config: Mapping[str, Scalar]

    def text(self, name: str) -> str:
        """Return a text, empty if there is none."""
        return str(self._typed(name, "", str))

    def path(self, name: str) -> Path | None:
        """Return a path, None if there is none."""
        text = self.text(name)
        return Path(text) if text else None

    def switch(self, name: str) -> bool:
        """Return true or false; false if it is not set."""
        return bool(self._typed(name, False, bool))

    def number(self, name: str, otherwise: float) -> float:
        """Return a number."""
        return float(self._typed(name, otherwise, int, float))

    def whole_number(self, name: str, otherwise: int | None) -> int:
        """Return a whole number; without `otherwise` there must be one."""
        if otherwise is None and name not in self.config:
            raise RunError(f"{self.where}: {name} is missing")
        return int(self._typed(name, 0 if otherwise is None else otherwise, int))

    def _typed(self, name: str, otherwise: Scalar, *kinds: type) -> Scalar:
        value = self.config.get(name, otherwise)
        if type(value) not in kinds:
            raise RunError(f"{self.where}: {name} is {value!r}, not a {kinds[-1].__name__}")
        return value
