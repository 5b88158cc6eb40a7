"""What the server keeps of its sites in the run folder, so that a run can go on without them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbb.errors import RunError
from fedbb.flower.app.serde import Outline
from fedbb.flower.app.settings import Scoring
from fedbb.methods import Method
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, Task
from fedbb.runs.folder import CARDS, RunFolder
from fedbb.runs.metadata import (
    ClientRecord,
    FederationRecord,
    describe_clients,
    set_up_folder,
)


@dataclass(frozen=True)
class Register:
    """The clients of a run as they introduced themselves, and what the run is called at sites.

    Cards of `hidden` clients, those of a private run, tell nothing but their number.
    """

    run: str
    score: Scoring
    outline: Outline
    infos: tuple[ClientInfo, ...]
    hidden: bool = False


def name_run(recipe: Recipe) -> str:
    """Return a name that no other run has, for a recipe may be run many times."""
    name = recipe.name or f"{recipe.data.name}-{recipe.method.name}-seed{recipe.seed}"
    return f"{name}-{secrets.token_hex(4)}"


def save_register(folder: RunFolder, register: Register) -> None:
    """Keep a register."""
    outline = register.outline
    folder.write_json(
        CARDS,
        {
            "run": register.run,
            "score": register.score,
            "outline": {
                "data": outline.data,
                "task": str(outline.task),
                "classes": list(outline.classes),
                "channels": outline.channels,
                "versions": outline.versions,
            },
            "cards": [_plain(info, hidden=register.hidden) for info in register.infos],
        },
    )


def _plain(info: ClientInfo, *, hidden: bool) -> dict[str, Any]:
    told = {} if hidden else {"samples": info.samples, "dispersion": info.dispersion}
    return {"client": info.client, **told}


def load_register(folder: RunFolder) -> Register:
    """Return the register of a run that was begun on Flower."""
    if not folder.file(CARDS).exists():
        raise RunError(f"{folder.path} was not begun on Flower; go on with: fedbb run --resume")
    plain = folder.read_json(CARDS)
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
        return Register(plain["run"], plain["score"], outline, infos, hidden)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder.file(CARDS)} is damaged: {error!r}") from error


def set_up(
    folder: RunFolder, recipe: Recipe, method: Method, register: Register, scored: Mapping[str, int]
) -> None:
    """Write what a run folder needs to begin."""

    def begin() -> FederationRecord:
        save_register(folder, register)
        return describe(register, scored, describe_clients(register.infos, method))

    set_up_folder(folder, recipe, begin)


def describe(
    register: Register,
    scored: Mapping[str, int],
    clients: Sequence[ClientRecord],
    samples: int | None = None,
) -> FederationRecord:
    """Return what the server of a deployed federation knows of its clients.

    Args:
        register: The clients as they introduced themselves.
        scored: Number of examples that the server scores rounds on, by name.
        clients: What it knows of each client.
        samples: Number of training samples of all clients, if it does not know that of each.
    """
    outline, notes = register.outline, []
    if register.score == "sites":
        notes.append("scores are means over the sites, each on its own test data")
    return FederationRecord(
        data=outline.data,
        task=outline.task,
        classes=outline.classes,
        train=sum(info.samples for info in register.infos) if samples is None else samples,
        scored=scored,
        positives=None,
        clients=tuple(clients),
        notes=tuple(notes),
    )
