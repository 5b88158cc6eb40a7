"""The settings of local training, and the job that a client is given."""

from __future__ import annotations

from dataclasses import dataclass

from fedbb.records import ModelState


@dataclass(frozen=True)
class LocalConfig:
    """How a client trains in a round, by SGD.

    Threads, memory format and device are among the settings because the bits of a result depend on
    them.

    Args:
        epochs: passes over the client's data in a round.
        batch_size: samples per step.
        lr: the learning rate.
        momentum: the momentum factor; the momentum starts at zero in every round.
        nesterov: whether the momentum is Nesterov's.
        weight_decay: the factor of the L2 penalty on the parameters.
        drop_last: whether a short last batch is left out, unless it is the only one.
        keep_momentum: whether a client goes on with the momentum of its last round.
        augment: whether images are augmented as their data set says.
        threads: threads that torch computes with in one client's training.
        channels_last: whether images and weights are laid out channels-last.
        device: the torch device, such as "cpu", "cuda" or "cuda:1".
    """

    epochs: int = 1
    batch_size: int = 32
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    drop_last: bool = False
    keep_momentum: bool = False
    augment: bool = True
    threads: int = 1
    channels_last: bool = True
    device: str = "cpu"


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
