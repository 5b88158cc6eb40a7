"""What an inspection supposes: the hyper-parameters of PNB and CBR, and the size of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedbb.aggregation.weighting import ClientBalanced
from fedbb.imbalance.clients import Reading
from fedbb.losses.pnb import PNB


@dataclass(frozen=True)
class Settings:
    """The paper's settings unless given; `saturation` is what the advice on β aims at.

    `beta`, `tau` and `mu` are those of PNB, `gamma` and `reading` those of CBR.
    """

    beta: float = 0.9999
    tau: float = 1.0
    mu: float | Literal["unit"] = 4.0
    gamma: float = 1.0
    reading: Reading = "share-std"
    batch_size: int = 32
    saturation: float = 0.5

    def __post_init__(self) -> None:
        _ = self.loss, self.weighting
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")
        if not 0.0 < self.saturation < 1.0:
            raise ValueError(f"saturation must be between 0 and 1, not {self.saturation}")

    @property
    def loss(self) -> PNB:
        """PNB of these settings."""
        return PNB(self.beta, self.tau, self.mu)

    @property
    def weighting(self) -> ClientBalanced:
        """CBR of these settings."""
        return ClientBalanced(self.gamma, self.reading)
