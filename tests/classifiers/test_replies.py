"""Statistics that no samples can have are refused, with the reason."""

import pytest
import torch

from fedbb.classifiers.head import Head
from fedbb.classifiers.served import SummedEmbeddings
from fedbb.classifiers.sums import sum_embeddings
from fedbb.methods.ccvr import FeatureMoments, class_moments
from fedbb.methods.climb import StartLoss
from fedbb.methods.creff import FederatedFeatures, HeadGradients, fit_prototypes, sum_gradients
from fedbb.records import Task

EMBEDDINGS = torch.tensor([[1.0, 2.0], [3.0, 1.0], [0.0, 4.0]])
LABELS = torch.tensor([0, 0, 2])


def gradients():
    head = Head(torch.tensor([[1.0, 0], [0, 1], [1, 1]]), torch.zeros(3))
    found = sum_gradients(EMBEDDINGS, LABELS, head)
    held = torch.tensor([1.0, 0.0, 1.0])
    number = torch.tensor([2.0, 1.0, 1.0])
    weight, bias = found.weight / number.view(-1, 1, 1), found.bias / number.view(-1, 1)
    return {"weight": weight, "bias": bias, "held": held}


def sums():
    return sum_embeddings(EMBEDDINGS, LABELS, 3, Task.MULTICLASS).tensors()


def moments():
    return class_moments(EMBEDDINGS, LABELS, 3).tensors()


def changed(values, name, place, value):
    copy = values[name].clone()
    copy[place] = value
    return {**values, name: copy}


@pytest.mark.parametrize(
    ("statistic", "values"),
    [(SummedEmbeddings(), sums()), (FeatureMoments(), moments()), (HeadGradients(), gradients())],
)
def test_what_clients_compute_is_accepted(statistic, values):
    assert statistic.fault(values) is None


@pytest.mark.parametrize(
    ("statistic", "values", "reason"),
    [
        (SummedEmbeddings(), changed(sums(), "counts", (0, 0), -1.0), "not whole numbers"),
        (SummedEmbeddings(), changed(sums(), "counts", (0, 0), 1.5), "not whole numbers"),
        (SummedEmbeddings(), changed(sums(), "counts", (0, 0), 9.0), "more than its 3 samples"),
        (SummedEmbeddings(), changed(sums(), "sums", (0, 1, 0), 9.0), "of which it counts none"),
        (SummedEmbeddings(), changed(sums(), "outer", 0, 0.0), "a variance below 0"),
        (FeatureMoments(), changed(moments(), "counts", 0, -1.0), "not whole numbers"),
        (FeatureMoments(), changed(moments(), "products", (1, 0), 1.0), "of which it counts none"),
        (HeadGradients(), changed(gradients(), "held", 0, 0.5), "marked by 0 and 1"),
        (HeadGradients(), changed(gradients(), "bias", (1, 0), 0.1), "that it does not hold"),
        (HeadGradients(), changed(gradients(), "bias", (0, 1), 0.9), "not those of a softmax"),
        (HeadGradients(), changed(gradients(), "weight", (0, 0, 0), 1e6), "too long"),
        (StartLoss(), {"loss": torch.tensor(-1.0), "samples": torch.tensor(3.0)}, "its loss is -1"),
        (StartLoss(), {"loss": torch.tensor(1e5), "samples": torch.tensor(3.0)}, "not from 0 to"),
        (StartLoss(), {"loss": torch.tensor(1.0), "samples": torch.tensor(0.0)}, "no samples"),
    ],
)
def test_what_no_samples_can_have_is_refused(statistic, values, reason):
    assert reason in statistic.fault(values)


def test_prototypes_keep_their_inner_products_in_the_width_of_the_embedding():
    rows = ((3.0, 0.0, 4.0, 0.0), (0.0, 2.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0))
    placed = fit_prototypes(rows, 3, 7)
    unit = torch.nn.functional.normalize(torch.tensor(rows), dim=1)
    assert placed.shape == (3, 7)
    torch.testing.assert_close(placed @ placed.T, unit @ unit.T, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="3 prototypes for 4 classes"):
        fit_prototypes(rows, 4, 7)
    with pytest.raises(ValueError, match="embedding of at least as many dimensions, and it has 2"):
        fit_prototypes(rows, 3, 2)
    with pytest.raises(ValueError, match="needs a prototype of each class"):
        FederatedFeatures(contrast=0.001)
