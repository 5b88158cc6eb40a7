"""What the server knows of a run's sites, saved in the run folder so that a run can be resumed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbb.aggregation.weighting import BySamples
from fedbb.errors import RunError
from fedbb.flower.app.serde import Outline
from fedbb.flower.app.settings import Scoring
from fedbb.methods import Method
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, Task
from fedbb.runs import metadata as environment
from fedbb.runs.folder import RunFolder

CLIENTS_FILE = "cards.json"


@dataclass(frozen=True)
class RunMetadata:
    """A run on Flower: its name at the sites, who scores, the form of the data, the clients.

    The infos of `hidden` clients, those of a private run, hold nothing but their number.
    """

    run: str
    score: Scoring
    outline: Outline
    infos: tuple[ClientInfo, ...]
    hidden: bool = False


def name_run(recipe: Recipe) -> str:
    """Return a name that no other run has: a recipe may be run many times."""
    name = recipe.name or f"{recipe.data.name}-{recipe.method.name}-seed{recipe.seed}"
    return f"{name}-{secrets.token_hex(4)}"


def save_run_metadata(folder: RunFolder, metadata: RunMetadata) -> None:
    """Write the metadata of a run into its folder."""
    outline = metadata.outline
    folder.write_json(
        CLIENTS_FILE,
        {
            "run": metadata.run,
            "score": metadata.score,
            "outline": {
                "data": outline.data,
                "task": str(outline.task),
                "classes": list(outline.classes),
                "channels": outline.channels,
                "versions": outline.versions,
            },
            "cards": [_plain(info, hidden=metadata.hidden) for info in metadata.infos],
        },
    )


def _plain(info: ClientInfo, *, hidden: bool) -> dict[str, Any]:
    figures = {} if hidden else {"samples": info.samples, "dispersion": info.dispersion}
    return {"client": info.client, **figures}


def load_run_metadata(folder: RunFolder) -> RunMetadata:
    """Return the metadata of a run that was begun on Flower."""
    if not folder.file(CLIENTS_FILE).exists():
        raise RunError(
            f"{folder.path} was not begun on Flower; continue it with: fedbb run --resume"
        )
    plain = folder.read_json(CLIENTS_FILE)
    try:
        form = plain["outline"]
        outline = Outline(
            form["data"],
            Task(form["task"]),
            tuple(form["classes"]),
            form["channels"],
            form["versions"],
        )
        infos = tuple(ClientInfo(**{"samples": 0, **info}) for info in plain["cards"])
        hidden = all("samples" not in info for info in plain["cards"])
        return RunMetadata(plain["run"], plain["score"], outline, infos, hidden)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder.file(CLIENTS_FILE)} is damaged: {error!r}") from error


def set_up(
    folder: RunFolder,
    recipe: Recipe,
    method: Method,
    metadata: RunMetadata,
    scored: Mapping[str, int],
) -> None:
    """Write the files with which a run begins; recipe.json comes last, since it marks a run."""
    try:
        save_run_metadata(folder, metadata)
        folder.write_json("federation.json", describe(metadata, method, scored))
        folder.write_json("environment.json", environment.describe())
        folder.write_json("recipe.json", recipe.model_dump(mode="json"))
    except OSError as error:
        raise RunError(f"{folder.path} cannot be written: {error}") from error


def describe(metadata: RunMetadata, method: Method, scored: Mapping[str, int]) -> dict[str, Any]:
    """Return what the server of a real federation knows: sizes, dispersions and weights."""
    outline, infos = metadata.outline, metadata.infos
    notes = []
    if metadata.score == "sites":
        notes.append("scores are means over the sites, each on its own test data")
    return {
        "data": outline.data,
        "task": str(outline.task),
        "classes": list(outline.classes),
        "train": sum(info.samples for info in infos),
        "scored": dict(scored),
        "positives": None,
        "clients": _describe_clients(infos, method),
        "notes": notes,
    }


def _describe_clients(infos: Sequence[ClientInfo], method: Method) -> list[dict[str, Any]]:
    weighed = any(info.samples for info in infos)
    weights = method.weighting(infos) if weighed else [0.0] * len(infos)
    by_size = BySamples()(infos) if weighed else [0.0] * len(infos)
    return [
        {
            "client": info.client,
            "samples": info.samples,
            "dispersion": info.dispersion,
            "weight": float(weights[info.client]),
            "weight_by_samples": float(by_size[info.client]),
            "loss_weight": None,
            "positives": None,
        }
        for info in infos
    ]
