"""The settings of local training, the learning rate over the rounds, and one client's job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self, get_args

from annotated_types import Ge, Le, Lt

from fedbb._util.constraints import STRICT_TABLE, Count, NotNegative, Positive
from fedbb.errors import RecipeError
from fedbb.methods import Method
from fedbb.records import ModelState, Tensors

ScheduleKind = Literal["constant", "cosine", "step"]

KIND_ONLY = {"cosine": ("final", "rounds"), "step": ("step_size", "milestones", "gamma")}
"""Settings that only one kind of schedule has."""


@dataclass(frozen=True)
class LRSchedule:
    """The learning rate over the rounds: `local.schedule` of a recipe.

    All epochs of a round have one rate. The laws are those of torch's schedulers, with a step of
    the scheduler after each round: `CosineAnnealingLR`, `StepLR`, `MultiStepLR`, and `LinearLR` for
    the warm-up.

    Args:
        kind: "constant"; "cosine", half a period from the full rate down to `final`; "step", a
            multiplication by `gamma` now and then.
        warmup: rounds at the beginning in which the rate rises linearly: round r of w has
            r / (w + 1) of it.
        final: the share of the rate that a cosine approaches; the round after the last would have
            it.
        step_size: rounds after which "step" multiplies the rate, again and again.
        milestones: numbers of rounds after each of which "step" multiplies the rate once.
        gamma: the factor of "step".
        rounds: rounds until the end of a cosine; None for the number of rounds of the run.

    Raises:
        ValueError: the kind is unknown, a setting belongs to another kind, or "step" has not
            exactly one of `step_size` and `milestones`.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    kind: ScheduleKind = "constant"
    warmup: Annotated[int, Ge(0)] = 0
    final: Annotated[float, Ge(0), Le(1)] = 0.0
    step_size: Count | None = None
    milestones: tuple[Count, ...] = ()
    gamma: Positive = 0.1
    rounds: Count | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScheduleKind):
            allowed = ", ".join(get_args(ScheduleKind))
            raise ValueError(f"the kind {self.kind!r} is unknown; allowed: {allowed}")
        for kind, names in KIND_ONLY.items():
            for name in names if kind != self.kind else ():
                if getattr(self, name) != getattr(LRSchedule, name):
                    raise ValueError(f"{name} belongs to the kind {kind!r}, not {self.kind!r}")
        if self.kind == "step" and (self.step_size is None) == (not self.milestones):
            raise ValueError("the kind 'step' needs either step_size or milestones")

    @property
    def is_constant(self) -> bool:
        """Whether all rounds have the same rate."""
        return self.kind == "constant" and self.warmup == 0

    def over(self, rounds: int) -> LRSchedule:
        """Return the schedule for a run of this many rounds."""
        if self.kind != "cosine" or self.rounds is not None:
            return self
        return replace(self, rounds=rounds)

    def lr(self, full: float, number: int) -> float:
        """Return the learning rate of round `number`, from 1, of which the full rate is `full`.

        Examples:
            >>> [LRSchedule("cosine", warmup=1, rounds=3).lr(0.1, number) for number in (1, 2, 3)]
            [0.05, 0.1, 0.05]
        """
        if self.warmup and number <= self.warmup:
            return full * number / (self.warmup + 1) * self._factor(number)
        return full * self._factor(number)

    def _factor(self, number: int) -> float:
        done = number - 1
        if self.kind == "cosine":
            return self._cosine(done - self.warmup)
        if self.kind == "step":
            passed = sum(milestone <= done for milestone in self.milestones)
            return self.gamma ** (passed if self.step_size is None else done // self.step_size)
        return 1.0

    def _cosine(self, done: int) -> float:
        if self.rounds is None:
            raise ValueError(
                "a cosine schedule needs the number of rounds: LocalConfig.over(rounds) sets it"
            )
        length = max(1, self.rounds - self.warmup)
        angle = math.pi * min(max(done, 0), length) / length
        # Exactly 1/2 in the middle, where the cosine of a rounded angle is not 0.
        cosine = 0.0 if 2 * done == length else math.cos(angle)
        return self.final + (1.0 - self.final) * (1.0 + cosine) / 2


CONSTANT = LRSchedule()

Beta = Annotated[float, Ge(0), Lt(1)]

OptimizerName = Literal["sgd", "adam", "adamw"]
Precision = Literal["float32", "bf16"]
CHOICES = {"optimizer": get_args(OptimizerName), "precision": get_args(Precision)}

SGD_ONLY = ("momentum", "nesterov")
ADAM_ONLY = ("betas", "eps")
"""Settings that only one kind of optimizer has."""


@dataclass(frozen=True)
class LocalConfig:
    """How a client trains in a round: the section `local` of a recipe.

    Threads, memory format, device and precision are among the settings because the bits of a result
    depend on them.

    Args:
        epochs: passes over the client's data in a round.
        batch_size: samples per batch.
        lr: the learning rate, on which the schedule builds.
        momentum: the momentum factor of SGD, below 1.
        nesterov: whether the momentum is Nesterov's, which must be above 0.
        weight_decay: the factor of the L2 penalty on the parameters; under "adamw" the decay of the
            parameters themselves, per step and times the learning rate.
        drop_last: whether a short last batch is left out, unless it is the only one.
        augment: whether images are augmented as their data set says.
        threads: threads that torch computes with in one client's training.
        channels_last: whether images and weights are laid out channels-last.
        device: the torch device, such as "cpu", "cuda" or "cuda:1".
        optimizer: "sgd", "adam" or "adamw", step for step as torch's. What it remembers of earlier
            steps is forgotten after every round, except in centralized training.
        betas: the decay rates of Adam's two running means.
        eps: what Adam adds to its denominator.
        schedule: the learning rate over the rounds; an `LRSchedule`, or its kind alone.
        clip: the largest norm of the whole gradient; longer ones are scaled to it. A method that
            clips as well clips to the smaller of the two.
        accumulate: batches per optimizer step. Their gradients are averaged over samples, so that
            k batches of b samples equal one batch of k·b. At the end of an epoch a step may have
            fewer batches.
        precision: "float32", or "bf16" for a forward pass under torch's autocast; the loss, the
            parameters and the optimizer stay float32.

    Raises:
        ValueError: an optimizer or a precision is unknown, Nesterov's momentum is 0, or a setting
            belongs to another optimizer.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    epochs: Count = 1
    batch_size: Count = 32
    lr: Positive = 0.01
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 1e-4
    drop_last: bool = False
    augment: bool = True
    threads: Annotated[int, Ge(1), Le(1024)] = 1
    channels_last: bool = True
    device: str = "cpu"
    optimizer: OptimizerName = "sgd"
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: Positive = 1e-8
    schedule: LRSchedule | ScheduleKind = CONSTANT
    clip: Positive | None = None
    accumulate: Count = 1
    precision: Precision = "float32"

    keep_optimizer: ClassVar[bool] = False
    """Whether a client goes on with the state of its optimizer after its last round."""

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}"
                )
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        for name in ADAM_ONLY if self.optimizer == "sgd" else SGD_ONLY:
            if getattr(self, name) != getattr(LocalConfig, name):
                raise ValueError(f'{name} has no meaning for optimizer = "{self.optimizer}"')
        if isinstance(self.schedule, str):
            # One form for equal settings: recipes are compared, and named by what they hold.
            object.__setattr__(self, "schedule", LRSchedule(self.schedule))

    @property
    def lr_schedule(self) -> LRSchedule:
        """The learning rate over the rounds."""
        assert isinstance(self.schedule, LRSchedule)
        return self.schedule

    def lr_in(self, number: int) -> float:
        """Return the learning rate of round `number`, from 1."""
        return self.lr_schedule.lr(self.lr, number)

    def over(self, rounds: int) -> Self:
        """Return the settings for a run of this many rounds, which its schedule may need."""
        return replace(self, schedule=self.lr_schedule.over(rounds))


@dataclass(frozen=True)
class CentralConfig(LocalConfig):
    """How central training goes: a round continues the last, so the optimizer's state is kept."""

    keep_optimizer: ClassVar[bool] = True


UNSTABLE = 2.0
"""A gradient step of this length on (1/2)·v² ends as far from 0 as it began."""


@dataclass(frozen=True)
class TrainJob:
    """One client's work in one round.

    Args:
        client: the number of the client.
        round: the number of the round, from 1.
        seed: the seed of the run, from which the random streams are derived.
        state: the global state to start from.
        broadcast: what the server sends beside it, by name.
        measure: whether the client only computes the statistics of this state and trains nothing.
    """

    client: int
    round: int
    seed: int
    state: ModelState
    broadcast: Tensors = field(default_factory=dict)
    measure: bool = False


def check_optimizer(method: Method, local: LocalConfig) -> None:
    """Refuse an optimizer that a method is not defined for.

    Raises:
        RecipeError: the method counts or corrects plain gradient steps, and Adam's are none; or the
            pull on clients' own models is too strong for the learning rate.
    """
    own = None if method.personal is None else method.personal.second
    if own is not None and local.optimizer == "sgd" and local.lr * own.lam >= UNSTABLE:
        raise RecipeError(
            f"{method.name}: lam {own.lam:g} times local.lr {local.lr:g} is "
            f"{local.lr * own.lam:g}; from {UNSTABLE:g} on every step moves a client's own model "
            "farther from the shared one than it was"
        )
    if method.needs.sgd and local.optimizer != "sgd":
        raise RecipeError(
            f'{method.name} needs local.optimizer = "sgd", whose gradient steps it counts; '
            f'"{local.optimizer}" takes steps of another length'
        )
