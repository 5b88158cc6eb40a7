"""A loss of your own in a federation: the package knows nothing of it and is not touched."""

from dataclasses import dataclass

import torch
from torch import nn

from fedbb.data.registry import load_dataset
from fedbb.methods import Method, fedavg
from fedbb.partition.registry import Rule
from fedbb.records import LabelCounts, Task
from fedbb.rounds.loop import Schedule
from fedbb.runs.simulate import simulate
from fedbb.training.config import LocalConfig


@dataclass(frozen=True)
class RootBalanced:
    """Cross-entropy; a class weighs one over the root of how often the client has it."""

    def supports(self, task: Task) -> bool:
        """Tell what kind of labels it is for."""
        return task is Task.MULTICLASS

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss of a client with these counts."""
        return nn.CrossEntropyLoss(torch.tensor(counts.positive).float().clamp(min=1).rsqrt())

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the factor on step sizes: none, for torch divides by the sum of the weights."""
        return 1.0

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Return what the client should know."""
        return []


digits, rule = load_dataset("digits"), Rule("label-skew", clients=8, concentration=0.3)
for method in (fedavg(), Method("RootBalanced", loss=RootBalanced())):
    *_, last = simulate(digits, rule, method, Schedule(number=5), local=LocalConfig(lr=0.03))
    print(f"{method.name}: balanced accuracy {last.scores['test'].macro['balanced_accuracy']:.3f}")
