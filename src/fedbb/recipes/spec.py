"""The records a recipe is read into: frozen, checked, unknown keys refused.

Sections that a part of the package runs by (`local`, `rounds`, `defense`, `data.partition`) are the
configuration records of that part: plain dataclasses whose annotations are checked here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema

from fedbb._util.constraints import Count, Fraction, Seed
from fedbb.partition.registry import Rule
from fedbb.rounds.loop import Schedule
from fedbb.rounds.round import RoundPolicy
from fedbb.training.config import LocalConfig


def _read_table(source: Any, handler: GetCoreSchemaHandler) -> Any:
    """Let a table stand for a dataclass; strict reading would take instances only."""
    schema = handler(source)
    table: Any = handler.resolve_ref_schema(schema)
    table["strict"] = False
    return schema


TABLE = GetPydanticSchema(_read_table)


class Section(BaseModel):
    """What all parts of a recipe have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


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
        partition: How the training data is divided among clients.
    """

    name: str
    path: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    train_images: Count | None = None
    long_tail: Fraction | None = None
    validation: Annotated[float, Ge(0), Lt(1)] = 0.0
    validation_by: str | None = None
    partition: Annotated[Rule, TABLE] = Rule()


class ModelSpec(Section):
    """Which network is trained.

    Attributes:
        name: A network of the registry.
        projection: Whether it has MOON's projection head; if None, as the method needs.
    """

    name: str = "small-cnn"
    projection: bool | None = None


class MethodSpec(Section):
    """Which algorithm trains and aggregates.

    Attributes:
        name: A method of `fedbb.methods`, or "base+balancing" for two that are combined.
        options: Its hyper-parameters; for a combination, one table for each of the two.
    """

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class EvaluationSpec(Section):
    """How rounds are scored.

    Attributes:
        metric: Macro metric that the best round is chosen by; if None, balanced accuracy for
            multi-class and AUROC for multi-label data.
        batch_size: Images that are scored at once.
    """

    metric: Literal["accuracy", "balanced_accuracy", "f1", "auroc", "average_precision"] | None = (
        None
    )
    batch_size: Count = 256


class Recipe(Section):
    """One run, complete.

    Attributes:
        name: Name of the run and its folder; derived from the other settings if None.
        seed: Seed of all random streams.
        engine: Where clients train: "pool" in worker processes, "inline" in this process, "auto"
            as the machine suggests; "central" trains one model on all data.
        privacy: Secure aggregation: "masked" or "bfv"; "none" for plain aggregation.
        data: The data, and its partition.
        model: The network.
        method: The algorithm.
        local: Local training of a client.
        rounds: Number of rounds, and participation.
        defense: Fault tolerance and Byzantine robustness.
        evaluation: Scoring of rounds.
    """

    name: Annotated[str, Field(min_length=1, pattern=r"^[\w.+=-]+$")] | None = None
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

    @property
    def decisive(self) -> Recipe:
        """The recipe as far as results depend on it: where clients run changes no bit."""
        return self if self.engine == "central" else self.model_copy(update={"engine": "auto"})
