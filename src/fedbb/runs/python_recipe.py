"""Runs that are made from Python: their arguments, parts, and the recipes that record them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from numbers import Integral
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from torch import nn

from fedbb._util.validation import explain_validation_error
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.mapped import chunk_rows
from fedbb.data.public import public_digest, with_public
from fedbb.data.splits import hold_out
from fedbb.data.teacher_file import with_teacher
from fedbb.errors import RecipeError
from fedbb.evaluation.operating_point import ThresholdRule
from fedbb.methods import Method, build_method
from fedbb.models.base import set_classifier
from fedbb.models.registry import ModelSource
from fedbb.partition.partition import Partition
from fedbb.partition.registry import KINDS, Rule, divide
from fedbb.recipes.check import check_settings
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import DataSpec, Recipe
from fedbb.records import ModelState
from fedbb.rng import stream
from fedbb.rounds.loop import Schedule
from fedbb.rounds.round import RoundPolicy
from fedbb.runs.federation import OWN_TEST, Federation, keep_own_test
from fedbb.runs.runner import LoadParts, RunParts
from fedbb.runs.runtime import make_network
from fedbb.sampling import ALL_SAMPLES
from fedbb.secagg.dp import DifferentialPrivacy
from fedbb.secagg.neighbours import SecureSums
from fedbb.state import at_rest, digest, snapshot
from fedbb.training.config import LocalConfig

Privacy = Literal["none", "masked", "bfv"]

NEEDED: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "data": (Dataset, "a fedbb.Dataset, as fedbb.Dataset.from_arrays or from_torch makes it"),
    "clients": (
        (Partition, Rule),
        "a partition, as fedbb.partition.dirichlet(data, clients=10, concentration=0.5) makes it",
    ),
    "method": (
        (str, Method),
        'a name such as "fedbb", or what a function of fedbb.methods returns',
    ),
    "local": (LocalConfig, "a fedbb.LocalConfig, such as fedbb.LocalConfig(lr=0.01)"),
    "rounds": ((Integral, Schedule), "a whole number or a fedbb.Schedule"),
    "defense": (RoundPolicy, "a fedbb.RoundPolicy"),
    "dp": ((DifferentialPrivacy, type(None)), "a fedbb.DifferentialPrivacy"),
    "secure": (SecureSums, "a fedbb.SecureSums"),
}
"""What an argument must be, for those whose other types would fail far from the call."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A run to be.

    Attributes:
        recipe: Its settings.
        load: Returns its parts.
    """

    recipe: Recipe
    load: LoadParts


@dataclass(frozen=True, eq=False, kw_only=True)
class Arguments:
    """What describes a run to `simulate` and `iter_rounds`, where each argument is explained."""

    data: Dataset
    clients: Partition | Rule
    public: Dataset | npt.NDArray[Any] | None
    model: ModelSource | Sequence[ModelSource]
    method: str | Method
    local: LocalConfig
    rounds: int | Schedule
    seed: int
    participation: float | None
    validation: float
    validation_by: str | None
    own_test: float
    metric: str | None
    defense: RoundPolicy
    privacy: Privacy
    dp: DifferentialPrivacy | None
    secure: SecureSums
    central: bool
    batch_size: int
    min_cases: int
    bootstrap: int
    threshold: ThresholdRule | None
    logit_adjustment: bool | float
    personal: int | None
    classifier: str | None
    workers: int | None

    def experiment(self) -> Experiment:
        """Return the run of these arguments, if they suit each other.

        Raises:
            RecipeError: Arguments contradict each other, or the network does not suit the data.
            DataError: The partition does not divide this data.
        """
        self._check_kinds()
        method = build_method(self.method, {}) if isinstance(self.method, str) else self.method
        spec = self._data_spec()
        teacher = method.needs.teacher
        data = with_teacher(self.data, teacher) if teacher else self.data
        if self.public is not None:
            data = with_public(data, self.public)
        federation = divide_data(data, self.clients, spec, self.seed)
        on_cpu = replace(self.local, device="cpu")
        networks = make_networks(self.model, method, self.data, on_cpu, self.seed)
        if self.classifier is not None:
            for network in networks:
                set_classifier(network, self.classifier)
        recipe = self._recipe(federation, networks)
        method = check_settings(recipe, method)

        def load(device: str | None) -> RunParts:
            place = self.local.device if device is None else device
            first, *others = (deepcopy(network).to(place) for network in networks)
            by_client = (first, *others) if recipe.model.by_client else ()
            return RunParts(method, federation, first, by_client)

        return Experiment(recipe, load)

    def _check_kinds(self) -> None:
        for name, (kind, expected) in NEEDED.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise RecipeError(f"{name} is of type {type(value).__name__}; needed: {expected}")
        if not (callable(self.model) or isinstance(self.model, str | nn.Module | Sequence)):
            raise RecipeError(
                f"model is of type {type(self.model).__name__}; needed: an nn.Module, a function "
                "that returns one, or the name of a built-in network"
            )

    def _data_spec(self) -> DataSpec:
        try:
            return DataSpec(
                name=self.data.name,
                validation=self.validation,
                validation_by=self.validation_by,
                own_test=self.own_test,
            )
        except ValidationError as error:
            raise RecipeError(f"simulate: {explain_validation_error(error, DataSpec)}") from error

    def _recipe(self, federation: Federation, networks: Sequence[nn.Module]) -> Recipe:
        """Return the recipe that records the run; it says what the arguments are."""
        method = self.method
        if isinstance(method, str):
            described = {"name": method, "options": {}}
        else:
            described = {"name": method.name, "options": describe_method(method)}
        values = {
            "seed": self.seed,
            "engine": "central" if self.central else "inline" if self.workers == 0 else "auto",
            "privacy": self.privacy,
            "dp": None if self.dp is None else asdict(self.dp),
            "secure": asdict(self.secure),
            "data": {
                "name": self.data.name,
                "validation": self.validation,
                "validation_by": self.validation_by,
                "own_test": self.own_test,
                "partition": asdict(self._rule(federation.partition)),
                "public": describe_public(federation.dataset, self.public),
            },
            "model": describe_models(self.model),
            "method": described,
            "local": asdict(self.local),
            "rounds": asdict(self._schedule()),
            "defense": asdict(self.defense),
            "evaluation": self._evaluation(),
            "python": fingerprints(federation, *networks),
        }
        return make_recipe(values, where="simulate")

    def _evaluation(self) -> dict[str, Any]:
        rule = self.threshold
        return {
            "metric": self.metric,
            "batch_size": self.batch_size,
            "min_cases": self.min_cases,
            "bootstrap": self.bootstrap,
            "threshold": rule if rule is None or isinstance(rule, str) else {"sensitivity": rule},
            "logit_adjustment": self.logit_adjustment,
            "personal": self.personal,
        }

    def _rule(self, partition: Partition) -> Rule:
        if not self.central:
            return describe_rule(partition, self.seed)
        if len(partition.clients) != 1:
            raise RecipeError(
                "central training has one client that holds all data, as "
                "fedbb.partition.iid(data, clients=1) makes it; the partition has "
                f"{len(partition.clients)}"
            )
        return Rule()

    def _schedule(self) -> Schedule:
        rounds = self.rounds
        schedule = rounds if isinstance(rounds, Schedule) else Schedule(number=int(rounds))
        if self.participation is None:
            return schedule
        return replace(schedule, participation=self.participation)


def describe_public(
    data: Dataset, public: Dataset | npt.NDArray[Any] | None
) -> dict[str, Any] | None:
    """Return what a recipe says of a run's public inputs."""
    if data.public is None:
        return None
    name = public.name if isinstance(public, Dataset) else "array"
    return {"name": name, "images": len(data.public)}


def divide_data(data: Dataset, clients: Partition | Rule, spec: DataSpec, seed: int) -> Federation:
    """Hold out validation data and the clients' own test data, if any, and divide the rest.

    Args:
        data: All data.
        clients: Which client has which training examples.
        spec: The shares that are held out.
        seed: Seed of the run.

    Raises:
        RecipeError: Validation data is asked for, and the data has such a part.
        DataError: The partition does not divide this data, or no client can keep test data.
    """
    labels, scored = data.train.labels, {"test": data.test}
    if isinstance(clients, Partition):
        clients.check(labels)
    if data.validation is not None:
        scored["validation"] = data.validation
        if spec.validation:
            raise RecipeError(
                f"validation is {spec.validation}, but {data.name} has a validation part of "
                "its own; leave one of them out"
            )
    if spec.validation:
        places = np.arange(len(data.train))
        # The rows alone are drawn, as the examples would be, so that the partition can follow.
        rows = Examples(places, places, data.train.columns)
        rng = stream(seed, "validation")
        kept, held = hold_out(rows, spec.validation, rng, by=spec.validation_by)
        scored["validation"] = data.train.take(held.labels)
        data = replace(data, train=data.train.take(kept.labels))
        if isinstance(clients, Partition):
            clients = clients.restrict(kept.labels, labels)
    if isinstance(clients, Rule):
        clients = divide(clients.resolve(seed), data.train, data.task)
    federation = Federation(data, clients, scored)
    return keep_own_test(federation, spec, seed) if spec.own_test else federation


PLAIN = bool | int | float | str | None

_NUMBERS = 2**24
"""Numbers that are hashed at once, so that data on disk is not read into memory as a whole."""


def fingerprints(federation: Federation, *networks: nn.Module) -> dict[str, str]:
    """Return the section `python` of a run's recipe.json."""
    data = hashlib.sha256()
    own = () if federation.own_test is None else ((OWN_TEST, federation.own_test.examples),)
    for name, examples in (("train", federation.dataset.train), *federation.scored.items(), *own):
        data.update(name.encode())
        _add(data.update, examples)
    if federation.dataset.public is not None:
        data.update(f"public {public_digest(federation.dataset.public)}".encode())
    places = hashlib.sha256()
    for held in federation.partition.clients:
        places.update(len(held).to_bytes(8, "little") + held.astype("<i8").tobytes())
    return {
        "data": data.hexdigest(),
        "partition": places.hexdigest(),
        "model": ", ".join(_name(type(network)) for network in networks),
        "weights": " ".join(digest(snapshot(network)) for network in networks),
    }


def make_networks(
    model: ModelSource | Sequence[ModelSource],
    method: Method,
    data: Dataset,
    local: LocalConfig,
    seed: int,
) -> tuple[nn.Module, ...]:
    """Return the network of all clients, or those that clients take in turn.

    Raises:
        RecipeError: A network cannot be built, or the list is empty.
    """
    models = (model,) if isinstance(model, str | nn.Module) or callable(model) else model
    if not models:
        raise RecipeError("model is an empty list; it names the networks that clients take in turn")
    return tuple(make_network(one, method, data, local, seed=seed) for one in models)


def describe_models(model: ModelSource | Sequence[ModelSource]) -> dict[str, Any]:
    """Return the section `model` of a run's recipe."""
    if isinstance(model, str | nn.Module) or callable(model):
        return {"name": describe_model(model)}
    names = [describe_model(one) for one in model]
    return {"name": names[0], "by_client": names}


def describe_model(model: ModelSource) -> str:
    """Return what a recipe calls this network: its own name, or where its code is."""
    if isinstance(model, str):
        return model
    return _name(type(model) if isinstance(model, nn.Module) else model)


def describe_method(method: Method) -> dict[str, Any]:
    """Return the slots of a method as plain values, to tell it from others of its name."""
    slots = ("loss", "penalties", "weighting", "merge")
    described = {slot: _plain(getattr(method, slot)) for slot in slots}
    # Left out where they are empty: runs of methods without them have the names they always had.
    further: dict[str, Any] = {
        "sampling": ALL_SAMPLES,
        "personal": None,
        "distillation": None,
        "statistics": (),
        "server": (),
        "compression": None,
    }
    return described | {
        slot: _plain(getattr(method, slot))
        for slot, empty in further.items()
        if getattr(method, slot) != empty
    }


def describe_rule(partition: Partition, seed: int) -> Rule:
    """Return how a partition was made, as far as a recipe can say it.

    The seed is left out if it is that of the run: runs are compared that differ only in it.
    """
    made = partition.rule
    kind = str(made.get("kind", "own"))
    if kind not in KINDS:
        return Rule(kind, clients=len(partition.clients))
    known = {field.name for field in fields(Rule)}
    values = {name: value for name, value in made.items() if name in known}
    if values.get("seed") == seed:
        del values["seed"]
    return Rule(**values)


def _add(update: Callable[[bytes], object], examples: Examples) -> None:
    teacher = () if examples.teacher is None else (examples.teacher,)
    for array in (examples.inputs, examples.labels, *teacher):
        update(f"{array.dtype.str}{array.shape}".encode())
        step = chunk_rows(array, _NUMBERS, len(array))
        for start in range(0, len(array), step):
            update(np.ascontiguousarray(array[start : start + step]).tobytes())


def _plain(part: Any) -> Any:
    """Return a part as values that JSON can hold and that are the same in every process."""
    if isinstance(part, float) and not math.isfinite(part):
        return repr(part)  # JSON has no such number
    if isinstance(part, PLAIN):
        return part
    if isinstance(part, tuple | list):
        return [_plain(inner) for inner in part]
    if isinstance(part, nn.Module):
        return {"kind": _name(type(part)), "text": repr(part), **_contents(part)}
    if is_dataclass(part) and not isinstance(part, type):
        inner = {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
        return {"kind": _name(type(part)), **inner}
    return _name(part if hasattr(part, "__qualname__") else type(part))


def _contents(module: nn.Module) -> dict[str, Any]:
    """Return what the text of a module may not show: its settings, and its tensors as a digest."""
    settings = {
        f"{path}.{name}".lstrip("."): _plain(value)
        for path, inner in module.named_modules()
        for name, value in vars(inner).items()
        if isinstance(value, PLAIN) and not name.startswith("_") and name != "training"
    }
    # Also buffers that are not persistent, such as the weights of a loss.
    params, buffers = (
        {name: at_rest(tensor) for name, tensor in named}
        for named in (module.named_parameters(), module.named_buffers())
    )
    return {"settings": settings, "weights": digest(ModelState(params, buffers))}


def _name(code: Any) -> str:
    name = getattr(code, "__qualname__", type(code).__qualname__)
    return f"{getattr(code, '__module__', type(code).__module__)}:{name}"
