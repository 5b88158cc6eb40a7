"""The settings of a run and of a site: Flower's flat run and node configs, checked on entry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fedbb._util.files import parse_json
from fedbb.errors import RecipeError, RunError
from fedbb.flower.admin.paths import SiteFolder
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe

Scalar = bool | int | float | str
Scoring = Literal["server", "sites"]

MOST_RUNS = 1000
"""The most private runs under one roster that a site can consent to."""


@dataclass(frozen=True)
class RunSettings:
    """The run config.

    Args:
        recipe: what to run.
        folder: the run folder at the server.
        resume: whether to continue a run in that folder.
        score: whether the server scores models on the recipe's data, or each site on its own.
        wait: seconds to wait for sites that are not connected.
        sites: the number of sites if the recipe's partition does not say; 0 takes those that are
            connected when the run begins.
        keys: the folder of the server's keys in private runs.
        node_keys: the client of each registered node key, by the SHA-256 of the key.
    """

    recipe: Recipe
    folder: Path
    resume: bool = False
    score: Scoring = "server"
    wait: float = 300.0
    sites: int = 0
    keys: Path | None = None
    node_keys: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteSettings:
    """The node config.

    Args:
        client: which client of the recipe this site is, from 0.
        data: the path of its data, in place of the recipe's.
        public: the path of the public inputs there, in place of the recipe's.
        whole: whether all training data there is its own; otherwise the recipe's partition is
            applied and the site takes its part.
        state: the folder in which it keeps prepared data and its client's state between rounds.
        keys: the folder of its identity and roster for private runs.
        private: whether it takes part in private runs only; None if it does once it is enrolled.
        private_runs: in how many private runs under one roster it takes part.
        allowed_code: the networks and losses in code that a recipe may name here, separated by
            commas in the node config.
    """

    client: int
    data: str | None = None
    public: str | None = None
    whole: bool = False
    state: Path | None = None
    keys: Path | None = None
    private: bool | None = None
    private_runs: int = 1
    allowed_code: tuple[str, ...] = ()

    def check_open_run(self) -> None:
        """Refuse an open run unless the site takes part in such runs.

        A server could otherwise read an enrolled site by sending it a recipe without privacy.
        """
        if self.private:
            raise RunError("this site takes part in private runs only, as its staff has set")
        if self.private is None and self.keys is not None and SiteFolder(self.keys).roster.exists():
            raise RunError(
                "this site is enrolled for private runs and takes part in no other, unless its "
                "staff sets private = false in site.toml"
            )


def read_run_settings(config: Mapping[str, Scalar]) -> RunSettings:
    """Return the settings in a run config."""
    values = _Values("run config", config)
    folder = values.text("folder")
    if not folder:
        raise RunError("run config: folder is missing; it is the run folder at the server")
    score = values.text("score") or "server"
    if score not in ("server", "sites"):
        raise RunError(f'run config: score is {score!r}; it must be "server" or "sites"')
    wait = values.number("wait", 300.0)
    sites = values.integer("sites", 0)
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
        node_keys=_read_node_keys(values.text("node-keys")),
    )


def _read_node_keys(text: str) -> dict[str, int]:
    """Return the client of each node key in a run config; empty if it names none."""
    try:
        clients = parse_json(text) if text else {}
    except ValueError as error:
        raise RunError(f"run config: node-keys is not valid JSON: {error}") from error
    if not isinstance(clients, dict) or any(type(client) is not int for client in clients.values()):
        raise RunError("run config: node-keys must be a table of client numbers by key digest")
    return clients


def read_recipe_text(text: str) -> Recipe:
    """Return the recipe that a run config holds as JSON."""
    if not text:
        raise RecipeError("run config: recipe is missing; it is the whole recipe as JSON")
    try:
        values = parse_json(text)
    except ValueError as error:
        raise RecipeError(f"run config: recipe is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise RecipeError("run config: recipe must be a table of settings")
    return make_recipe(values, where="run config: recipe")


def read_site_settings(config: Mapping[str, Scalar]) -> SiteSettings:
    """Return the settings in a node config."""
    values = _Values("node config", config)
    client = values.integer("client", None)
    if client < 0:
        raise RunError(f"node config: client is {client}; sites are numbered from 0")
    private_runs = values.integer("allowed-private-runs", 1)
    if not 1 <= private_runs <= MOST_RUNS:
        raise RunError(
            f"node config: allowed-private-runs is {private_runs}; it must lie between 1 and "
            f"{MOST_RUNS}"
        )
    return SiteSettings(
        client=client,
        data=values.text("data") or None,
        public=values.text("public-data") or None,
        whole=values.switch("whole"),
        state=values.path("state"),
        keys=values.path("keys"),
        private=values.switch("private") if "private" in config else None,
        private_runs=private_runs,
        allowed_code=split_names(values.text("allowed-code")),
    )


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in a text that separates them by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class _Values:
    """Flower's flat settings, each read by its type.

    Unknown settings are ignored: a node's config is for every app that runs there.
    """

    where: str
    config: Mapping[str, Scalar]

    def text(self, name: str) -> str:
        """Return a string, empty if it is not set."""
        return str(self._typed(name, "", str))

    def path(self, name: str) -> Path | None:
        """Return a path, None if it is not set."""
        text = self.text(name)
        return Path(text) if text else None

    def switch(self, name: str) -> bool:
        """Return a boolean, false if it is not set."""
        return bool(self._typed(name, False, bool))

    def number(self, name: str, default: float) -> float:
        """Return a number."""
        return float(self._typed(name, default, int, float))

    def integer(self, name: str, default: int | None) -> int:
        """Return an integer; without a default it must be set."""
        if default is None and name not in self.config:
            raise RunError(f"{self.where}: {name} is missing")
        return int(self._typed(name, 0 if default is None else default, int))

    def _typed(self, name: str, default: Scalar, *kinds: type) -> Scalar:
        value = self.config.get(name, default)
        if type(value) not in kinds:
            raise RunError(f"{self.where}: {name} is {value!r}, not a {kinds[-1].__name__}")
        return value
