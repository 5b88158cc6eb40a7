"""The records a recipe is read into: frozen, checked, unknown keys refused.

Sections that a part of the package runs by (`local`, `rounds`, `defense`, `data.partition`) are the
configuration records of that part: plain dataclasses whose annotations are checked here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le, Lt
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core.core_schema import no_info_before_validator_function

from fedbb._util.constraints import Count, Fraction, NotNegative, Seed
from fedbb.partition.registry import Rule
from fedbb.rounds.loop import Schedule
from fedbb.rounds.round import RoundPolicy
from fedbb.secagg.dp import DifferentialPrivacy
from fedbb.secagg.neighbours import SecureSums
from fedbb.training.config import LocalConfig


def _read_table(source: Any, handler: GetCoreSchemaHandler) -> Any:
    """Let a table stand for a dataclass; strict reading would take instances only."""
    schema = handler(source)
    _loosen(schema, handler)
    return schema


def _loosen(schema: Any, handler: GetCoreSchemaHandler) -> None:
    """Let tables stand for dataclasses, and arrays for tuples, here and in all fields.

    Where a field takes a record or the name of its kind, a name becomes a table with that `kind`;
    so messages speak of one form only.
    """
    schema = handler.resolve_ref_schema(schema)
    if schema["type"] in ("dataclass", "tuple"):
        schema["strict"] = False
    if schema["type"] == "dataclass":
        for field in schema["schema"]["fields"]:
            _loosen(field["schema"], handler)
    elif schema["type"] == "union":
        table = schema["choices"][0]
        _loosen(table, handler)
        schema.clear()
        schema.update(no_info_before_validator_function(_table_of_kind, table))
    elif schema["type"] in ("default", "nullable"):
        _loosen(schema["schema"], handler)


def _table_of_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


TABLE = GetPydanticSchema(_read_table)


ADDED: Final[Mapping[str, tuple[str, ...]]] = {
    "data": (
        *("normalize", "crop", "flip", "padding", "own_test", "label_noise", "label_noise_kind"),
        "public",
    ),
    "data.partition": ("classes_per_client", "holders", "shards_per_client", "options"),
    "model": ("options", "weights", "freeze", "classifier", "by_client"),
    "method": ("loss", "teacher_sha256"),
    "local": ("optimizer", "betas", "eps", "schedule", "clip", "accumulate", "precision"),
    "rounds": ("patience", "target", "topology", "degree", "graph_seed"),
    "evaluation": ("min_cases", "bootstrap", "threshold", "logit_adjustment", "personal"),
    "": ("dp", "secure"),
}
"""Keys of sections that are younger than run folders. A recipe is written without them as long as
they have their defaults: its text, from which folders and runs are named, stays what it was."""

EVERY_KEY: Final = "every key"
"""As the context of `model_dump`: write all keys, also those of `ADDED`."""


OWN_TEACHER: Final = "own"
"""As `method.teacher_sha256`: every site has a teacher file of its own, which nothing binds."""


# Dots alone would name the folder itself or the one above it; file systems bound the length.
FolderName = Annotated[str, Field(max_length=240, pattern=r"^\.*[\w+=-][\w.+=-]*$")]


class Section(BaseModel):
    """What all parts of a recipe have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PublicSpec(Section):
    """Inputs without labels that every client and the server have, to learn from one another.

    Attributes:
        name: A data set of the registry, of which the training inputs are taken; if None, the
            inputs are taken out of the training data before it is divided.
        path: File or folder of the data, for data sets that need one.
        options: Options of the data set's loader.
        images: Number of inputs to draw; all if None, which needs a `name`.
    """

    name: str | None = None
    path: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    images: Count | None = None


class DataSpec(Section):
    """Which data is trained on, what is held out, and how clients share it.

    Attributes:
        name: A data set of the registry.
        path: File or folder of the data, for data sets that need one.
        options: Options of the data set's loader.
        train_images: Number of training images to draw; all if None.
        long_tail: Size of the rarest class as a fraction of the most frequent; as it is if None.
        validation: Fraction of the training data held out to choose the best round.
        validation_by: Column whose values are held out whole, such as the patient.
        normalize: How inputs are shifted and scaled: "training" by mean and deviation of all
            training inputs, "federated" by the same from sums of each client, "none" not at all;
            if None, as the data set does by itself.
        crop: Pixels of padding before a random crop of training images; if None, as the data set
            does by itself.
        flip: Whether training images are mirrored at random; likewise.
        padding: What the padding holds: "zeros" or "reflect"; likewise.
        own_test: Fraction of each client's data that it keeps to test the shared model on.
        label_noise: Probability that a training label is made wrong on purpose.
        label_noise_kind: Wrong labels are any other class ("symmetric") or the next one ("pair").
        partition: How the training data is divided among clients.
        public: Public inputs, which methods of distillation learn from; none if None.
    """

    name: str
    path: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    train_images: Count | None = None
    long_tail: Fraction | None = None
    validation: Annotated[float, Ge(0), Lt(1)] = 0.0
    validation_by: str | None = None
    normalize: Literal["training", "federated", "none"] | None = None
    crop: Annotated[int, Ge(0)] | None = None
    flip: bool | None = None
    padding: Literal["zeros", "reflect"] | None = None
    own_test: Annotated[float, Ge(0), Lt(1)] = 0.0
    label_noise: Annotated[float, Ge(0), Lt(1)] = 0.0
    label_noise_kind: Literal["symmetric", "pair"] = "symmetric"
    partition: Annotated[Rule, TABLE] = Rule()
    public: PublicSpec | None = None


def _named(value: Any) -> Any:
    if not isinstance(value, str | Mapping | NetworkSpec):
        raise ValueError("an entry is the name of a network, or a table with name and options")
    return {"name": value} if isinstance(value, str) else value


class NetworkSpec(Section):
    """One of the networks that clients take in turn.

    Attributes:
        name: As `model.name`.
        options: Arguments of the network's builder.
    """

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class ModelSpec(Section):
    """Which network is trained.

    Attributes:
        name: A built-in network, one that an installed package registers, or
            "package.module:function", which runs only if the caller allows code.
        options: Arguments of the network's builder.
        weights: File of weights to start from: .safetensors, or a state dict in .pt or .pth.
        freeze: Patterns of the names of parameters that are not trained, as in "features.*".
        classifier: Module whose input is the embedding; the last `nn.Linear` if None.
        projection: Whether a built-in network has MOON's projection head; if None, as the method
            needs.
        by_client: Networks that the clients take in turn, each a name or a table with `name` and
            `options`, in place of one for all. Only where no part of a model is shared.
    """

    name: str = "small-cnn"
    options: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    freeze: list[str] = Field(default_factory=list)
    classifier: str | None = None
    projection: bool | None = None
    by_client: list[Annotated[NetworkSpec, BeforeValidator(_named)]] = Field(default_factory=list)

    @property
    def networks(self) -> tuple[ModelSpec, ...]:
        """The networks that clients take in turn; this one alone if all have the same."""
        if not self.by_client:
            return (self,)
        return tuple(ModelSpec(name=one.name, options=one.options) for one in self.by_client)

    @property
    def title(self) -> str:
        """The names of the networks, for readers."""
        return ", ".join(dict.fromkeys(one.name for one in self.networks))

    def of_client(self, client: int) -> ModelSpec:
        """Return the network of a client."""
        return self.networks[client % len(self.networks)]


class MethodSpec(Section):
    """Which algorithm trains and aggregates.

    Attributes:
        name: A method of `fedbb.methods`, or "base+balancing" for two that are combined.
        options: Its hyper-parameters; for a combination, one table for each of the two.
        loss: Loss in place of the method's own: one that an installed package registers, or
            "package.module:function", which runs only if the caller allows code.
        teacher_sha256: SHA-256 of the file that the option `teacher` names. If None, a run fills it
            in where it starts, if the file is there. "own" if every site has a file of its own.
    """

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    loss: str | None = None
    teacher_sha256: Annotated[str, Field(pattern=rf"^([0-9a-f]{{64}}|{OWN_TEACHER})$")] | None = (
        None
    )


class SensitivitySpec(Section):
    """A threshold that reaches a sensitivity.

    Attributes:
        sensitivity: Share of the positive validation cases that must be found.
    """

    sensitivity: Fraction


class EvaluationSpec(Section):
    """How rounds are scored, and how the trained model decides.

    Attributes:
        metric: Macro metric that the best round is chosen by; if None, balanced accuracy for
            multi-class and AUROC for multi-label data.
        batch_size: Images that are scored at once.
        min_cases: Test cases of a class below which it is left out of the second macro mean.
        bootstrap: Replicates for the intervals of the final and the best model; 0 for none.
        threshold: How a threshold for each class is chosen on validation data: "youden", "f1", or
            a table with the `sensitivity` to reach; None for one half.
        logit_adjustment: Strength of the post-hoc adjustment of the final and the best model by the
            class shares of all clients; true for 1.
        personal: Rounds from one score of the clients' own models on their own test data to the
            next; None for none during the run.
    """

    metric: Literal["accuracy", "balanced_accuracy", "f1", "auroc", "average_precision"] | None = (
        None
    )
    batch_size: Count = 256
    min_cases: Count = 10
    bootstrap: Annotated[int, Ge(0), Le(100_000)] = 1000
    threshold: Literal["youden", "f1"] | SensitivitySpec | None = None
    logit_adjustment: bool | NotNegative = False
    personal: Count | None = None


class Recipe(Section):
    """One run, complete.

    Attributes:
        name: Name of the run and its folder; derived from the other settings if None.
        seed: Seed of all random streams.
        engine: Where clients train: "pool" in worker processes, "inline" in this process, "auto"
            as the machine suggests; "central" trains one model on all data.
        privacy: Secure aggregation: "masked" or "bfv"; "none" for plain aggregation.
        dp: Differential privacy of model changes, under secure aggregation; none if None.
        secure: With whom clients share masks in secure sums, and what these may reveal.
        data: The data, and its partition.
        model: The network.
        method: The algorithm.
        local: Local training of a client.
        rounds: Number of rounds, and participation.
        defense: Fault tolerance and Byzantine robustness.
        evaluation: Scoring of rounds.
    """

    name: FolderName | None = None
    seed: Seed = 0
    engine: Literal["auto", "pool", "inline", "central"] = "auto"
    privacy: Literal["none", "masked", "bfv"] = "none"
    data: DataSpec
    model: ModelSpec = ModelSpec()
    method: MethodSpec
    local: Annotated[LocalConfig, TABLE] = LocalConfig()
    rounds: Annotated[Schedule, TABLE] = Schedule()
    defense: Annotated[RoundPolicy, TABLE] = RoundPolicy()
    evaluation: EvaluationSpec = EvaluationSpec()
    dp: Annotated[DifferentialPrivacy, TABLE] | None = None
    secure: Annotated[SecureSums, TABLE] = SecureSums()

    @property
    def decisive(self) -> Recipe:
        """The recipe as far as results depend on it: where clients run changes no bit."""
        return self if self.engine == "central" else self.model_copy(update={"engine": "auto"})

    @model_serializer(mode="wrap")
    def _write(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        for name, keys in ADDED.items() if info.context != EVERY_KEY else ():
            section: Any = self
            written: Any = values
            for part in filter(None, name.split(".")):
                section, written = getattr(section, part), written.get(part, {})
            for key in keys:
                if getattr(section, key) == _default(type(section), key):
                    written.pop(key, None)
        return values


def _default(section: Any, key: str) -> Any:
    """Return the default of a key; a section itself may have keys without one."""
    if issubclass(section, BaseModel):
        return section.model_fields[key].get_default(call_default_factory=True)
    return getattr(section(), key)


def run_name(recipe: Recipe) -> str:
    """Return the recipe's own name, or one derived from its settings."""
    if recipe.name:
        return recipe.name
    mark = hashlib.sha256(recipe.decisive.model_dump_json().encode()).hexdigest()[:8]
    return f"{recipe.data.name}-{recipe.method.name}-seed{recipe.seed}-{mark}"


class PythonSpec(Section):
    """What a recipe cannot say of a run that was made from Python, so that a resume can check it.

    Attributes:
        data: SHA-256 of the training, test and validation examples.
        partition: SHA-256 of the places of each client's examples.
        model: Name of the network's class.
        weights: SHA-256 of the weights that the run began with.
    """

    data: str
    partition: str
    model: str
    weights: str


class PythonRecipe(Recipe):
    """The record of a run that was made from Python; it can be read and compared, not run.

    Attributes:
        python: What distinguishes its data and network from others.
    """

    python: PythonSpec
