"""The records a recipe is read into: frozen, checked, unknown keys refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Section(BaseModel):
    """What all parts of a recipe have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PartitionSpec(Section):
    """How the training data is divided among clients."""

    kind: str = "label-skew"
    clients: Count | None = None
    concentration: Positive | None = None
    min_samples: Count | None = None
    seed: Seed | None = None
    column: str | None = None
    path: str | None = None


class DataSpec(Section):
    """Which data, how long its tail is made, what is held out, and how clients share it."""

    name: str
    path: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    train_images: Count | None = None
    long_tail: Share | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    validation_by: str | None = None
    partition: PartitionSpec = PartitionSpec()


class ModelSpec(Section):
    """Which network, with a projection head or without; by default as the method asks."""

    name: str = "small-cnn"
    projection: bool | None = None


class MethodSpec(Section):
    """Which algorithm, with which hyper-parameters."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class LocalSpec(Section):
    """How a client trains."""

    epochs: Count = 1
    batch_size: Count = 32
    lr: Positive = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 1e-4
    drop_last: bool = False
    augment: bool = True
    threads: Count = 1
    channels_last: bool = True
    device: str = "cpu"

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class RoundsSpec(Section):
    """How many rounds, and what part of the clients trains in each."""

    number: Count = 10
    participation: Share = 1.0


class DefenseSpec(Section):
    """What a round bears: absent clients, answers that come late, and updates that go too far."""

    quorum: Share = 0.5
    attempts: Count = 3
    deadline: Positive = 600.0
    max_norm: Positive | None = None
    max_weight: Share = 1.0
    rule: Literal["clip", "median", "trimmed-mean", "krum", "multi-krum"] | None = None
    byzantine: Annotated[int, Field(ge=0)] = 0


class EvaluationSpec(Section):
    """How rounds are scored, and by which macro metric the best one is chosen."""

    metric: Literal["accuracy", "balanced_accuracy", "f1", "auroc", "average_precision"] | None = (
        None
    )
    batch_size: Count = 256


class Recipe(Section):
    """One run, whole."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[\w.+=-]+$")] | None = None
    seed: Seed = 0
    engine: Literal["auto", "pool", "inline", "central"] = "auto"
    privacy: Literal["none", "masked", "bfv"] = "none"
    data: DataSpec
    model: ModelSpec = ModelSpec()
    method: MethodSpec
    local: LocalSpec = LocalSpec()
    rounds: RoundsSpec = RoundsSpec()
    defense: DefenseSpec = DefenseSpec()
    evaluation: EvaluationSpec = EvaluationSpec()

    @property
    def decisive(self) -> Recipe:
        """The recipe as far as results depend on it: where clients run changes no bit."""
        return self if self.engine == "central" else self.model_copy(update={"engine": "auto"})
