"""A site's data, prepared once and kept on disk.

To check the recipe and to load, check and divide the data may take longer than the training, so
the first message of a run writes the client's part of the data into the site's state folder. Later
runs, workers that were started again, and Flower's own processes, which live for one message, map
it from there. The name of the folder is a digest of everything that the content follows from: the
recipe, the site's settings, the versions of the software, and path, size and time of every source
file. The SHA-256 of each file in it is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.files import sync_folder
from fedbb._util.plugins import plugin_version
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.transforms import Augmentation
from fedbb.errors import RecipeError, RunError
from fedbb.flower.app.serde import VERSIONS
from fedbb.flower.app.settings import SiteSettings
from fedbb.partition.registry import Rule
from fedbb.recipes.check import check_data, check_recipe, method_of
from fedbb.recipes.spec import DataSpec, PublicSpec, Recipe
from fedbb.records import ClientInfo, Task
from fedbb.runs.federation import OWN_TEST, prepare, sums_inputs
from fedbb.training.local import ClientDataset

log = logging.getLogger("fedbb")

FOLDER = ".prepared"
"""A folder in the site's state folder; no run can have a name that begins with a dot."""

FACTS = "facts.json"
TEACHER = "train.teacher.npy"
PUBLIC = "public.npy"
FORMAT = 3
KEPT = 2
"""Prepared data sets that a site keeps: that of two runs which take turns."""

ABANDONED_SECONDS = 3600.0
"""Age from which an unfinished folder is taken for the remains of a process that was killed."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's training data, the examples on which it scores models, and its client info.

    `scored` has its own test data too, if it keeps some.
    """

    train: ClientDataset
    scored: Mapping[str, Examples]
    info: ClientInfo


def open_client_data(recipe: Recipe, settings: SiteSettings) -> ClientData:
    """Return a site's data, from disk if it was prepared before and its source is unchanged.

    Without a state folder nothing is kept, and every call prepares the data.
    """
    if settings.state is None:
        return prepare_client_data(recipe, settings)
    cache = settings.state / FOLDER / f"client-{settings.client}"
    key = _key(recipe, settings)
    try:
        return _load(cache / key)
    except (OSError, EOFError, ValueError, LookupError, TypeError):
        data = prepare_client_data(recipe, settings)
    # A source that changed meanwhile belongs to neither key.
    if _key(recipe, settings) == key:
        try:
            _save(data, cache, key)
        except OSError as error:
            log.warning("the prepared data could not be kept in %s: %s", cache, error)
    return data


def prepare_client_data(recipe: Recipe, settings: SiteSettings) -> ClientData:
    """Check the recipe, load, check and divide its data, and take this client's part."""
    method = check_recipe(recipe, allow_code=settings.allowed_code)
    teacher = method.needs.teacher
    federation = prepare(_undivided(recipe) if settings.whole else recipe, teacher=teacher)
    check_data(recipe, method, federation.dataset, None)
    parts = federation.partition.clients
    place = 0 if settings.whole else settings.client
    if place >= len(parts):
        raise RunError(
            f"this site is client {settings.client}, and the recipe divides the data among "
            f"{len(parts)}; if all of its data is its own, set whole=true in the node config"
        )
    train = ClientDataset(federation.dataset, parts[place])
    counts = train.counts
    info = ClientInfo(settings.client, counts.samples, method.weighting.measure(counts))
    scored = dict(federation.scored)
    if federation.own_test is not None:
        rows = np.flatnonzero(federation.own_test.owners == place)
        scored[OWN_TEST] = federation.own_test.examples.take(rows)
    return ClientData(train, scored, info)


def _undivided(recipe: Recipe) -> Recipe:
    if recipe.data.normalize == "federated" and not sums_inputs(recipe):
        raise RecipeError(
            'data.normalize = "federated" needs sums of all clients, and a site with whole=true '
            "has its own data only: use a private run, which sums them, or choose training"
        )
    if recipe.data.public is not None and recipe.data.public.name is None:
        raise RecipeError(
            "data.public takes its inputs out of the training data, and that of a site with "
            "whole=true is its own: name a data set in data.public"
        )
    everything = Rule(kind="even", clients=1)
    data = recipe.data.model_copy(update={"partition": everything})
    return recipe.model_copy(update={"data": data})


def _key(recipe: Recipe, settings: SiteSettings) -> str:
    facts = {
        "format": FORMAT,
        "recipe": recipe.model_dump(mode="json"),
        "client": settings.client,
        "whole": settings.whole,
        "versions": f"{VERSIONS}, numpy {np.__version__}",
    }
    registered = (
        plugin_version("fedbb.datasets", recipe.data.name),
        plugin_version("fedbb.partitions", recipe.data.partition.kind),
    )
    if any(registered):
        facts["registered"] = registered
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    assert settings.state is not None
    teacher = method_of(recipe).needs.teacher
    place, public = settings.state.resolve(), recipe.data.public
    sources = {
        *_source_files(recipe.data, place),
        *([] if public is None else _source_files(public, place)),
        *([Path(teacher)] if teacher else []),
    }
    for path in sorted(sources):
        try:
            status = path.stat()
        except OSError:
            continue  # removed just now; the loader says what it misses
        line = f"\n{path}\0{status.st_size}\0{status.st_mtime_ns}"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _source_files(data: DataSpec | PublicSpec, state: Path) -> Iterator[Path]:
    """Yield the files that a data section reads, or may read.

    Downloaded data sets are left out: their files are known by their SHA-256.
    """
    named = [value for value in data.options.values() if isinstance(value, str)]
    folders = [Path(value).resolve() for value in named if Path(value).exists()]
    if isinstance(data, DataSpec) and data.partition.path is not None:
        folders.append(Path(data.partition.path).resolve())
    if data.path is not None:
        path = Path(data.path).resolve()
        yield path
        if path.is_dir():
            folders.append(path)
        elif path.suffix != ".npz":
            # A table names images and lists beside it, unless an option says where they are.
            yield from path.parent.glob("*.*")
            folders += [] if "images" in data.options else [path.parent]
    for folder in folders:
        yield from _walk(folder, state)


def _walk(root: Path, state: Path) -> Iterator[Path]:
    """Yield a file, or all files below a folder, without hidden ones and the site's own state."""
    if not root.is_dir():
        yield root
        return
    for place, folders, names in os.walk(root):
        here = Path(place)
        folders[:] = [f for f in folders if not f.startswith(".") and here / f != state]
        yield from (here / name for name in names if not name.startswith("."))


def _save(data: ClientData, cache: Path, key: str) -> None:
    """Write prepared data so that it is complete or absent, readable by the owner alone."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.mkdir(mode=0o700, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=cache))
    try:
        train, rows = data.train.dataset.train, data.train.indices
        parts = {"train": Examples(train.inputs[rows], train.labels[rows]), **data.scored}
        for name, examples in parts.items():
            _write(temporary / f"{name}.images.npy", np.asarray(examples.inputs))
            _write(temporary / f"{name}.labels.npy", examples.labels)
        if train.teacher is not None:
            _write(temporary / TEACHER, train.teacher[rows])
        if data.train.dataset.public is not None:
            _write(temporary / PUBLIC, np.asarray(data.train.dataset.public))
        digests = {path.name: _sha256(path) for path in temporary.iterdir()}
        _write(temporary / FACTS, json.dumps({**_facts(data), "sha256": digests}).encode())
        shutil.rmtree(cache / key, ignore_errors=True)  # damaged, or it would have been used
        temporary.rename(cache / key)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_folder(cache)
    _remove_old(cache, key)


def _write(path: Path, content: bytes | npt.NDArray[Any]) -> None:
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        if isinstance(content, bytes):
            file.write(content)
        else:
            np.save(file, content, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _facts(data: ClientData) -> dict[str, Any]:
    dataset, rows = data.train.dataset, np.ascontiguousarray(data.train.indices, dtype=np.int64)
    return {
        "name": dataset.name,
        "task": str(dataset.task),
        "classes": list(dataset.classes),
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        "augmentation": {
            key: getattr(dataset.augmentation, key) for key in ("crop", "flip", "padding")
        },
        "notes": list(dataset.notes),
        "scored": list(data.scored),
        "client": data.info.client,
        "samples": data.info.samples,
        "dispersion": data.info.dispersion,
        "partition_sha256": hashlib.sha256(rows.tobytes()).hexdigest(),
    }


def _load(folder: Path) -> ClientData:
    facts = json.loads((folder / FACTS).read_text("utf-8"))
    for name, expected in facts["sha256"].items():
        if _sha256(folder / name) != expected:
            raise ValueError(f"{name} was changed")
    train = _read(folder, "train")
    if (folder / TEACHER).exists():
        logits = np.load(folder / TEACHER, mmap_mode="r", allow_pickle=False)
        train = replace(train, teacher=logits)
    public = None
    if (folder / PUBLIC).exists():
        public = np.load(folder / PUBLIC, mmap_mode="r", allow_pickle=False)
    if len(train.inputs) != facts["samples"]:
        raise ValueError(f"{len(train.inputs)} images, not {facts['samples']}")
    dataset = Dataset(
        name=facts["name"],
        task=Task(facts["task"]),
        classes=tuple(facts["classes"]),
        train=train,
        test=replace(train, inputs=train.inputs[:0], labels=train.labels[:0]),
        mean=tuple(facts["mean"]),
        std=tuple(facts["std"]),
        augmentation=Augmentation(**facts["augmentation"]),
        notes=tuple(facts["notes"]),
        public=public,
    )
    scored = {name: _read(folder, name) for name in facts["scored"]}
    info = ClientInfo(facts["client"], facts["samples"], facts["dispersion"])
    return ClientData(ClientDataset(dataset, np.arange(len(train))), scored, info)


def _read(folder: Path, name: str) -> Examples:
    images = np.load(folder / f"{name}.images.npy", mmap_mode="r", allow_pickle=False)
    labels = np.load(folder / f"{name}.labels.npy", allow_pickle=False)
    if len(images) != len(labels):
        raise ValueError(f"{name}: {len(images)} images and {len(labels)} labels")
    return Examples(images, labels)


def _remove_old(cache: Path, key: str) -> None:
    """Delete all but the newest prepared data sets, and what killed processes left behind."""
    found = [(entry.stat().st_mtime, entry) for entry in cache.iterdir() if entry.name != key]
    complete = sorted((f for f in found if not f[1].name.startswith(".")), reverse=True)
    limit = time.time() - ABANDONED_SECONDS
    abandoned = [f for f in found if f[1].name.startswith(".") and f[0] < limit]
    for _, entry in complete[KEPT - 1 :] + abandoned:
        shutil.rmtree(entry, ignore_errors=True)
