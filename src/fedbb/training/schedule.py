"""The learning rate over the rounds of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, get_args

from annotated_types import Ge, Le

from fedbb._util.constraints import STRICT_TABLE, Count, Positive

Kind = Literal["constant", "cosine", "step"]


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

    kind: Kind = "constant"
    warmup: Annotated[int, Ge(0)] = 0
    final: Annotated[float, Ge(0), Le(1)] = 0.0
    step_size: Count | None = None
    milestones: tuple[Count, ...] = ()
    gamma: Positive = 0.1
    rounds: Count | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            allowed = ", ".join(get_args(Kind))
            raise ValueError(f"the kind {self.kind!r} is unknown; allowed are {allowed}")
        for kind, names in OWN.items():
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

        >>> [LRSchedule("cosine", warmup=1, rounds=3).lr(0.1, number) for number in (1, 2, 3)]
        [0.05, 0.1, 0.05]
        """
        if number <= self.warmup:
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


OWN = {"cosine": ("final", "rounds"), "step": ("step_size", "milestones", "gamma")}
"""Settings that only one kind has."""

CONSTANT = LRSchedule()
