"""The paper's efficiency table as printed, and the setting it is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrintedCost:
    """A row of the paper's efficiency table, in millions, and what to know about it."""

    parameters: float
    macs: float
    note: str = ""


PAPER_MODEL, PAPER_CLASSES, PAPER_IMAGE = "resnet56", 100, (3, 32, 32)
PAPER_TABLE = {
    "fedavg": PrintedCost(0.61, 87.3),
    "fedprox": PrintedCost(1.21, 87.3),
    "moon": PrintedCost(2.21, 262.2),
    "fednova": PrintedCost(
        0.61, 95.24, "no count of ours gives 95.24; a client trains as FedAvg's"
    ),
    "fedalign": PrintedCost(0.61, 89.1, "without the matrices of the power iteration"),
    "fedlc": PrintedCost(0.61, 87.3),
    "fedbb": PrintedCost(0.61, 87.3),
}
