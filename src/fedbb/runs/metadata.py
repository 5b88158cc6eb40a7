"""What a run folder says about its run beside the rounds: its federation, and its environment."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch

from fedbb._util.files import replacing
from fedbb._version import __version__
from fedbb.aggregation.merging import BySamples
from fedbb.data.array_files import read_npz
from fedbb.data.dataset import Dataset
from fedbb.errors import DataError, RunError
from fedbb.methods import Method
from fedbb.partition.partition import Partition
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, FloatArray, IntArray, LabelCounts, Task
from fedbb.runs.folder import RunFolder
from fedbb.runs.model_info import MODEL_INFO, ModelInfo

FEDERATION = "federation.json"
CLIENTS = "clients.npz"
MANY_CLIENTS = 2000
"""From this number on, clients are kept as arrays in a file of their own."""

ENVIRONMENT = "environment.json"

NUMERICS = 1
"""Version of what the package computes, raised whenever a run would end with other bits.

Runs of another number cannot be resumed. Folders without one are from before it was written: 1.
"""

CHANGES = {"fedir": 1}
"""How often the bits of a method alone have changed, which adds to the number of its runs."""

DECISIVE = ("numerics", "torch", "numpy", "machine")
"""What must be the same for a run to be resumed; a release of fedbb may change without effect."""


PARTITION = "partition.json"
HIDDEN = "fedbb hidden partition 1"


@dataclass(frozen=True)
class ClientRecord:
    """One client as federation.json describes it.

    Args:
        client: Its number.
        samples: Size of its training data; None, like everything below, if the server of a private
            run does not know it.
        dispersion: How uneven its classes are; None if the weighting does not measure it.
        weight: Its weight in a round in which all clients take part.
        weight_by_samples: The weight that its size alone would give it.
        loss_weight: Mean weight of a case in its loss; None where the server cannot know it.
        positives: Samples of each class; None where the server cannot know them.
    """

    client: int
    samples: int | None = None
    dispersion: float | None = None
    weight: float | None = None
    weight_by_samples: float | None = None
    loss_weight: float | None = None
    positives: tuple[float, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as federation.json holds it."""
        if self.samples is None:
            return {"client": self.client}
        positives = None if self.positives is None else list(self.positives)
        return {**vars(self), "positives": positives}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ClientRecord:
        """Return the record of an entry of federation.json."""
        if content.keys() == {"client"}:
            return cls(int(content["client"]))
        spread, scale = content["dispersion"], content["loss_weight"]
        positives = content["positives"]
        return cls(
            client=int(content["client"]),
            samples=int(content["samples"]),
            dispersion=None if spread is None else float(spread),
            weight=float(content["weight"]),
            weight_by_samples=float(content["weight_by_samples"]),
            loss_weight=None if scale is None else float(scale),
            positives=None if positives is None else tuple(float(number) for number in positives),
        )


@dataclass(frozen=True, kw_only=True)
class KnownClient(ClientRecord):
    """A client whose size, weight and class counts are known."""

    samples: int
    weight: float
    weight_by_samples: float
    positives: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ClientTable(Sequence[ClientRecord]):
    """Many clients as arrays: a million of them as objects would take gigabytes.

    Args:
        samples: Size of each client's training data.
        weight: Weight of each in a round in which all take part.
        weight_by_samples: The weight that its size alone would give it.
        dispersion: How uneven its classes are; NaN if the weighting does not measure it.
        loss_weight: Mean weight of a case in its loss; NaN where it is not known.
        positives: Samples of each class, (clients, classes); None where they are not known.
    """

    samples: IntArray
    weight: FloatArray
    weight_by_samples: FloatArray
    dispersion: FloatArray
    loss_weight: FloatArray
    positives: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.samples)

    @overload
    def __getitem__(self, place: int) -> ClientRecord: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ClientRecord]: ...
    def __getitem__(self, place: int | slice) -> ClientRecord | Sequence[ClientRecord]:
        """Return the record of a client, or those of several."""
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        client = range(len(self))[place]
        facts: dict[str, Any] = {
            "client": client,
            "samples": int(self.samples[client]),
            "dispersion": _number(self.dispersion[client]),
            "weight": float(self.weight[client]),
            "weight_by_samples": float(self.weight_by_samples[client]),
            "loss_weight": _number(self.loss_weight[client]),
        }
        if self.positives is None:
            return ClientRecord(**facts)
        return KnownClient(**facts, positives=tuple(self.positives[client].tolist()))

    def save(self, folder: RunFolder) -> None:
        """Write the arrays beside federation.json."""
        arrays = {
            name: _whole(values)
            for name, values in vars(self).items()
            if values is not None and not np.isnan(values).all()
        }
        with replacing(folder.file(CLIENTS)) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, folder: RunFolder, number: int, classes: int) -> ClientTable:
        """Return the arrays that `save` wrote.

        Raises:
            RunError: The file is missing or damaged.
        """
        path = folder.file(CLIENTS)
        needed, further = cls.__match_args__[:3], cls.__match_args__[3:]
        try:
            found = read_npz(path, list(needed), list(further))
        except DataError as error:
            raise RunError(str(error)) from error
        unknown = np.full(number, np.nan)
        table = cls(
            samples=found["samples"],
            weight=found["weight"].astype(np.float64),
            weight_by_samples=found["weight_by_samples"].astype(np.float64),
            dispersion=found.get("dispersion", unknown).astype(np.float64),
            loss_weight=found.get("loss_weight", unknown).astype(np.float64),
            positives=found["positives"].astype(np.float64) if "positives" in found else None,
        )
        for name, values in vars(table).items():
            shape = (number, classes) if name == "positives" else (number,)
            if values is not None and values.shape != shape:
                raise RunError(f"{path} is damaged: {name} has shape {values.shape}, not {shape}")
        return table


def _whole(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers as integers if they all are, which takes a fraction of the space."""
    if not np.isfinite(values).all() or (values != np.trunc(values)).any():
        return values
    return values.astype(np.int64)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


@dataclass(frozen=True)
class FederationRecord:
    """A federation as federation.json describes it.

    Args:
        data: Name of the data set.
        task: Multi-class or multi-label.
        classes: Names of the classes.
        train: Number of training samples of all clients.
        scored: Number of examples that rounds are scored on, by name.
        positives: Training samples of each class; None where the server cannot know them.
        clients: The clients, in order.
        notes: Remarks on data and method for the log of a run.
        scored_cases: Label counts of the examples that rounds are scored on, by name; empty in
            run folders of older versions.
        digests: SHA-256 of what the run read beside its data, by the key of the recipe:
            "data.public", "model.weights".
    """

    data: str
    task: Task
    classes: tuple[str, ...]
    train: int
    scored: Mapping[str, int]
    positives: tuple[float, ...] | None
    clients: Sequence[ClientRecord]
    notes: tuple[str, ...] = ()
    scored_cases: Mapping[str, LabelCounts] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def known(self) -> Sequence[KnownClient]:
        """The clients whose class counts are known."""
        return tuple(KnownClient(**vars(c)) for c in self.clients if c.positives is not None)

    def with_notes(self, notes: Sequence[str]) -> FederationRecord:
        """Return the record with further remarks."""
        return replace(self, notes=(*self.notes, *notes))

    @property
    def hidden(self) -> int:
        """Number of clients whose class counts the server cannot know."""
        return len(self.clients) - len(self.known)

    @property
    def class_counts(self) -> tuple[float, ...]:
        """Training samples of each class; NaN where the server cannot know them."""
        return (math.nan,) * len(self.classes) if self.positives is None else self.positives

    @property
    def client_arrays(self) -> ClientTable | None:
        """The clients, if there are too many for `federation.json` and they have their own file."""
        if isinstance(self.clients, ClientTable) and len(self.clients) >= MANY_CLIENTS:
            return self.clients
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the record as federation.json holds it."""
        cases = {
            name: {
                "positive": counts.positive.tolist(),
                "negative": counts.negative.tolist(),
                "samples": counts.samples,
            }
            for name, counts in self.scored_cases.items()
        }
        return {
            "data": self.data,
            "task": str(self.task),
            "classes": list(self.classes),
            "train": self.train,
            "scored": dict(self.scored),
            "positives": None if self.positives is None else list(self.positives),
            "clients": {"file": CLIENTS, "number": len(self.clients)}
            if self.client_arrays is not None
            else [client.to_json() for client in self.clients],
            "notes": list(self.notes),
            # Folders of older versions, and servers without data, have none.
            **({"scored_cases": cases} if cases else {}),
            **({"digests": dict(self.digests)} if self.digests else {}),
        }

    @classmethod
    def from_json(cls, content: Any, folder: RunFolder | None = None) -> FederationRecord:
        """Return the record that federation.json holds.

        Args:
            content: The file's content.
            folder: The folder of the file, which may hold the clients in a file of their own.

        Raises:
            RunError: An entry is missing, or has another form.
        """
        try:
            positives = content["positives"]
            return cls(
                data=str(content["data"]),
                task=Task(content["task"]),
                classes=tuple(str(name) for name in content["classes"]),
                train=int(content["train"]),
                scored=dict(content["scored"]),
                positives=None if positives is None else tuple(float(n) for n in positives),
                clients=_read_clients(content["clients"], len(content["classes"]), folder),
                notes=tuple(str(note) for note in content.get("notes", ())),
                scored_cases={
                    name: LabelCounts(
                        np.array(counts["positive"], dtype=np.float64),
                        np.array(counts["negative"], dtype=np.float64),
                        int(counts["samples"]),
                    )
                    for name, counts in content.get("scored_cases", {}).items()
                },
                digests={str(k): str(v) for k, v in content.get("digests", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RunError(f"{FEDERATION} is damaged: {error!r}") from error


def _read_clients(content: Any, classes: int, folder: RunFolder | None) -> Sequence[ClientRecord]:
    if isinstance(content, list):
        return tuple(ClientRecord.from_json(client) for client in content)
    if folder is None or not isinstance(content, dict) or content.get("file") != CLIENTS:
        raise TypeError("clients is not a list")
    return ClientTable.load(folder, int(content["number"]), classes)


def read_run_recipe(folder: RunFolder) -> Recipe:
    """Return the recipe of the run in a folder.

    Raises:
        RunError: The folder holds no run.
        RecipeError: The recipe is damaged.
    """
    folder.check_run()
    return make_recipe(folder.read_json("recipe.json"), f"recipe of {folder.path}")


def read_federation(folder: RunFolder) -> FederationRecord:
    """Return what a run folder says about its federation."""
    try:
        return FederationRecord.from_json(folder.read_json(FEDERATION), folder)
    except RunError as error:
        raise RunError(f"{folder.path}: {error}") from error


def describe_clients(infos: Sequence[ClientInfo], method: Method) -> ClientTable:
    """Return what a server knows of its clients: size, dispersion and weight of each."""
    has_samples = any(info.samples for info in infos)
    none = np.zeros(len(infos))
    spreads = (math.nan if info.dispersion is None else info.dispersion for info in infos)
    return ClientTable(
        samples=np.fromiter((info.samples for info in infos), np.int64, len(infos)),
        weight=np.asarray(method.weighting(infos), np.float64) if has_samples else none,
        weight_by_samples=np.asarray(BySamples()(infos), np.float64) if has_samples else none,
        dispersion=np.fromiter(spreads, np.float64, len(infos)),
        loss_weight=np.full(len(infos), np.nan),
    )


def describe_environment(method: str) -> dict[str, Any]:
    """Return versions and machine, as far as results may depend on them.

    Args:
        method: The name of the method, such as "moon+fedbb".
    """
    parts = method.casefold().split("+")
    return {
        "fedbb": __version__,
        "numerics": NUMERICS + sum(CHANGES.get(part, 0) for part in parts),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
    }


def check_environment(before: Mapping[str, Any], method: str) -> None:
    """Refuse to resume with other software: the result would belong to neither.

    Args:
        before: What environment.json holds.
        method: The name of the method.

    Raises:
        RunError: A version that results depend on is another one.
    """
    if not isinstance(before, Mapping):
        raise RunError(f"{ENVIRONMENT} is damaged: it holds no table")
    before, now = {"numerics": 1, **before}, describe_environment(method)
    changed = [
        f"{name}: {before.get(name)} before, {now[name]} now"
        for name in DECISIVE
        if before.get(name) != now[name]
    ]
    if changed:
        raise RunError("the run was started with other software; " + "; ".join(changed))


def model_info_of(recipe: Recipe, method: Method, dataset: Dataset) -> ModelInfo:
    """Return what the model of a run needs outside it.

    Args:
        recipe: The recipe, which names the network.
        method: The method, which may ask for a projection head.
        dataset: The data, which gives classes and inputs.
    """
    wanted = recipe.model.projection
    return ModelInfo(
        network=recipe.model.title,
        options=recipe.model.options,
        projection=method.needs.projection if wanted is None else wanted,
        task=str(dataset.task),
        classes=dataset.classes,
        input_shape=tuple(dataset.train.inputs.shape[1:]),
        input_dtype=str(dataset.train.inputs.dtype),
        mean=dataset.mean,
        std=dataset.std,
        table=dataset.table,
        data=dataset.name,
        method=method.name,
        unshared=method.unshared,
        version=__version__,
        recipe=recipe.model_dump(mode="json"),
    )


def set_up_folder(
    folder: RunFolder,
    recipe: Recipe,
    describe: Callable[[], FederationRecord],
    model: Callable[[], ModelInfo | None] = lambda: None,
) -> None:
    """Write what a run folder begins with; recipe.json comes last, for it makes it a run.

    Args:
        folder: The folder, held by this process.
        recipe: The recipe of the run.
        describe: Returns the description of the federation, after it has written the files that
            only runs of its kind have.
        model: Returns, after `describe`, what the model needs outside the run; None if this process
            does not know the data.

    Raises:
        RunError: The folder cannot be written.
    """
    try:
        federation = describe()
        if (info := model()) is not None:
            folder.write_json(MODEL_INFO, info.to_json())
        if (table := federation.client_arrays) is not None:
            table.save(folder)
        folder.write_json(FEDERATION, federation.to_json())
        folder.write_json(ENVIRONMENT, describe_environment(recipe.method.name))
        folder.write_json("recipe.json", recipe.model_dump(mode="json"))
    except OSError as error:
        raise RunError(f"{folder.path} cannot be written: {error}") from error


def save_partition_digest(folder: RunFolder, partition: Partition) -> None:
    """Write only what a partition is recognized by: which samples a client has is its secret."""
    folder.write_json(PARTITION, {"format": HIDDEN, "sha256": _digest(partition)})


def is_same_partition(folder: RunFolder, partition: Partition) -> bool:
    """Return whether the run of the folder divides the data in the same way."""
    content = folder.read_json(PARTITION)
    if isinstance(content, dict) and content.get("format") == HIDDEN:
        return bool(content.get("sha256") == _digest(partition))
    return Partition.load(folder.file(PARTITION)) == partition


def _digest(partition: Partition) -> str:
    held = [places.tolist() for places in partition.clients]
    content = [partition.samples, partition.fingerprint, dict(partition.rule), held]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
