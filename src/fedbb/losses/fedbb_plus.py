"""The loss of the method `fedbb-plus`: PNB on logits calibrated as in FedLC."""

from typing import Self

from torch import Tensor

from fedbb.imbalance import Values
from fedbb.losses.drop_in import (
    IGNORED,
    Classes,
    CountedLoss,
    Reduction,
    TaskName,
    complete_counts,
    multiclass_entries,
    multilabel_entries,
    of_targets,
)
from fedbb.losses.logit_calibrated import (
    Calibrated,
    Calibration,
    calibrate,
    calibrate_labels,
    smooth_mixed,
    smooth_present,
)
from fedbb.losses.pnb import PNB, weigh
from fedbb.records import Task


class FedBBPlusLoss(CountedLoss):
    """PNB on calibrated logits, a drop-in for CE (multi-class) and BCE (multi-label).

    It is the loss of the method `fedbb-plus`. Its mean weight over the training data is one.
    Classes without a sample drop out, and so do labels of one kind of case: no probability, no
    gradient. Logits are calibrated for training only; predict from them as they are.

    >>> FedBBPlusLoss([10000, 16, 0]).margin
    tensor([0., 4., inf])

    Args:
        positives: cases of each class in the training data, (C,).
        negatives: cases against it; needed for multi-label data unless `samples` is given.
        samples: number of training samples, from which the negatives follow.
        task: "multiclass" or "multilabel"; see `forward` for the targets of each.
        margin: factor on the margins n^(−1/4) of the classes of multi-class data.
        label_margin: the same for the two cases of a label of multi-label data.
        beta: smoothing of PNB, in [0, 1); 0 leaves PNB out.
        reduction: "mean" divides by the number of known labels.
        label_smoothing: how much of each target is spread over the classes, from 0 to 1; classes
            that drop out get nothing of it.
        ignore_index: marks an unknown label in targets of an integer type.

    Raises:
        ValueError: counts or options outside of their range.
    """

    margin: Tensor
    positive_weight: Tensor
    negative_weight: Tensor

    def __init__(
        self,
        positives: Values,
        negatives: Values | None = None,
        *,
        samples: int | None = None,
        task: TaskName = Task.MULTICLASS,
        margin: float = 10.0,
        label_margin: float = 0.0,
        beta: float = 0.0,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        pnb = PNB(beta=beta, mu="unit")
        spec = Calibrated(pnb, Calibration(margin, label_margin))
        counts = complete_counts(positives, negatives, samples, Task(task))
        super().__init__(spec, counts, task, reduction, label_smoothing, ignore_index)
        weights = weigh(pnb, counts, self.task)
        self._keep("margin", spec.margins(counts, self.task))
        self._keep("positive_weight", weights.positive)
        self._keep("negative_weight", weights.negative)

    @classmethod
    def from_targets(
        cls,
        targets: Values,
        *,
        task: TaskName = Task.MULTICLASS,
        classes: Classes = None,
        margin: float = 10.0,
        label_margin: float = 0.0,
        beta: float = 0.0,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> Self:
        """Count a training set's targets and return the loss for them.

        Args:
            targets: class numbers, names, masks or labels, as `PNBLoss.from_targets` takes them.
            task: "multiclass" or "multilabel".
            classes: number of classes or their names, needed where some may be absent.
            margin: see the class, as for the arguments that follow.
            label_margin: see the class.
            beta: see the class.
            reduction: "mean", "sum" or "none".
            label_smoothing: see the class.
            ignore_index: see the class; such targets count nowhere.

        Returns:
            The loss; `class_names` has the names of text classes, sorted unless given.

        Raises:
            ValueError: targets that cannot be counted.
        """
        return of_targets(
            cls,
            targets,
            task,
            classes,
            ignore_index,
            margin=margin,
            label_margin=label_margin,
            beta=beta,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each sample or label on calibrated logits."""
        margin, ignored, smoothing = self.margin, self.ignore_index, self.label_smoothing
        positive, negative = self.positive_weight, self.negative_weight
        if self.multilabel:
            target = smooth_mixed(logits, target, margin, smoothing)
            return multilabel_entries(calibrate_labels(logits, margin), target, positive, negative)
        target = smooth_present(logits, target, margin, ignored, smoothing)
        return multiclass_entries(calibrate(logits, margin), target, positive, ignored)
