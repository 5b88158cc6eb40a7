"""A loss of your own in a federation: the package knows nothing of it and is not touched."""

from dataclasses import dataclass

import torch
from torch import nn

from fedbb.data.catalogue import load_dataset
from fedbb.engine.inline import Inline
from fedbb.evaluation.scorer import Scorer
from fedbb.methods import Method, fedavg
from fedbb.models.catalogue import build_model
from fedbb.partition.rules import Rule, divide
from fedbb.records import LabelCounts, Task
from fedbb.rounds import Schedule, Start, federate
from fedbb.state import snapshot
from fedbb.training.plan import LocalPlan, Share


@dataclass(frozen=True)
class RootBalanced:
    """Cross-entropy; a class weighs one over the root of how often the client has it."""

    def suits(self, task: Task) -> bool:
        """Tell what kind of labels it is for."""
        return task is Task.MULTICLASS

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss of a client with these counts."""
        return nn.CrossEntropyLoss(torch.tensor(counts.positive).float().clamp(min=1).rsqrt())

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the factor on step sizes: none, for torch divides by the sum of the weights."""
        return 1.0

    def remarks(self, counts: LabelCounts, task: Task) -> list[str]:
        """Return what the client should know."""
        return []


digits, rule = load_dataset("digits"), Rule("label-skew", clients=8, concentration=0.3)
shares = [Share(digits, part) for part in divide(rule, digits.train, digits.task).clients]
torch.manual_seed(0)
model = build_model("small-cnn", classes=10, channels=1)
start, scorer = Start(snapshot(model)), Scorer(model, digits, {"test": digits.test})
for method in (fedavg(), Method("RootBalanced", loss=RootBalanced())):
    engine = Inline(model, shares, method, LocalPlan(lr=0.03))
    *_, last = federate(engine, method, start, Schedule(rounds=5), scorer)
    print(f"{method.name}: balanced accuracy {last.scores['test'].macro['balanced_accuracy']:.3f}")
