"""The settings of local training, and the job that a client is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Lt

from fedbb._util.constraints import STRICT_TABLE, Count, NotNegative, Positive
from fedbb.records import ModelState


@dataclass(frozen=True)
class LocalConfig:
    """How a client trains in a round, by SGD: the section `local` of a recipe.

    Threads, memory format and device are among the settings because the bits of a result depend on
    them.

    Args:
        epochs: passes over the client's data in a round.
        batch_size: samples per step.
        lr: the learning rate.
        momentum: the momentum factor, below 1; the momentum starts at zero in every round.
        nesterov: whether the momentum is Nesterov's, which must be above 0.
        weight_decay: the factor of the L2 penalty on the parameters.
        drop_last: whether a short last batch is left out, unless it is the only one.
        augment: whether images are augmented as their data set says.
        threads: threads that torch computes with in one client's training.
        channels_last: whether images and weights are laid out channels-last.
        device: the torch device, such as "cpu", "cuda" or "cuda:1".

    Raises:
        ValueError: Nesterov's momentum is 0.
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
    threads: Count = 1
    channels_last: bool = True
    device: str = "cpu"

    keep_momentum: ClassVar[bool] = False
    """Whether a client goes on with the momentum of its last round."""

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")


@dataclass(frozen=True)
class CentralConfig(LocalConfig):
    """How central training goes: a round continues the last one, so the momentum is kept."""

    keep_momentum: ClassVar[bool] = True


@dataclass(frozen=True)
class TrainJob:
    """One client's work in one round.

    Args:
        client: the number of the client.
        round: the number of the round, from 1.
        seed: the seed of the run, from which the random streams are derived.
        state: the global state to start from.
    """

    client: int
    round: int
    seed: int
    state: ModelState
