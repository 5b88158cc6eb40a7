"""What the server knows of a run's sites, saved in the run folder so that a run can be resumed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbb.errors import RunError
from fedbb.flower.app.serde import Outline
from fedbb.flower.app.settings import Scoring
from fedbb.methods import Method
from fedbb.recipes.privacy import exposure_notes
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, IntArray, LabelCounts
from fedbb.runs.folder import CLIENTS_FILE, RunFolder
from fedbb.runs.metadata import ClientRecord, FederationRecord, describe_clients, set_up_folder
from fedbb.runs.model_info import ModelInfo


@dataclass(frozen=True)
class RunMetadata:
    """A run on Flower: its name at the sites, who scores, the form of the data, the clients.

    The infos of `hidden` clients, those of a private run, hold nothing but their number. `measured`
    are the sums over all clients of what the method's server steps measure of labels.
    """

    run: str
    score: Scoring
    outline: Outline
    infos: tuple[ClientInfo, ...]
    hidden: bool = False
    measured: Mapping[str, IntArray] = field(default_factory=dict)


def name_run(recipe: Recipe) -> str:
    """Return a name that no other run has: a recipe may be run many times."""
    name = recipe.name or f"{recipe.data.name}-{recipe.method.name}-seed{recipe.seed}"
    return f"{name}-{secrets.token_hex(4)}"


def save_run_metadata(folder: RunFolder, metadata: RunMetadata) -> None:
    """Write the metadata of a run into its folder."""
    sums = {name: values.tolist() for name, values in metadata.measured.items()}
    folder.write_json(
        CLIENTS_FILE,
        {
            "run": metadata.run,
            "score": metadata.score,
            "outline": metadata.outline.to_json(),
            "cards": [_plain(info, hidden=metadata.hidden) for info in metadata.infos],
            **({"measured": sums} if sums else {}),
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
        outline = Outline.from_json(plain["outline"])
        infos = tuple(ClientInfo(**{"samples": 0, **info}) for info in plain["cards"])
        hidden = all("samples" not in info for info in plain["cards"])
        measured = {
            str(name): np.asarray(values, dtype=np.int64)
            for name, values in plain.get("measured", {}).items()
        }
        return RunMetadata(plain["run"], plain["score"], outline, infos, hidden, measured)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder.file(CLIENTS_FILE)} is damaged: {error!r}") from error


def set_up(
    folder: RunFolder,
    recipe: Recipe,
    method: Method,
    metadata: RunMetadata,
    scored: Mapping[str, LabelCounts],
    model: ModelInfo | None,
) -> None:
    """Write the files with which a run begins."""

    def begin() -> FederationRecord:
        save_run_metadata(folder, metadata)
        described = describe(metadata, scored, describe_clients(metadata.infos, method))
        return described.with_notes(exposure_notes(recipe, method))

    set_up_folder(folder, recipe, begin, lambda: model)


def describe(
    metadata: RunMetadata,
    scored: Mapping[str, LabelCounts],
    clients: Sequence[ClientRecord],
    samples: int | None = None,
) -> FederationRecord:
    """Return what the server of a real federation knows of its clients.

    Args:
        metadata: the run and its clients.
        scored: the label counts of the examples that the server scores rounds on, by name.
        clients: what it knows of each client.
        samples: the number of all training samples, if the server does not know each client's.
    """
    outline, notes = metadata.outline, []
    if metadata.score == "sites":
        notes.append("scores are means over the sites, each on its own test data")
    return FederationRecord(
        data=outline.data,
        task=outline.task,
        classes=outline.classes,
        train=sum(info.samples for info in metadata.infos) if samples is None else samples,
        scored={name: counts.samples for name, counts in scored.items()},
        positives=None,
        clients=clients,
        notes=tuple(notes),
        scored_cases=scored,
    )
