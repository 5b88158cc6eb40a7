"""Re-training of a head: one step by hand, and the steps of torch's own SGD."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbb.classifiers.head import Head
from fedbb.classifiers.retraining import Retraining


def test_one_step_from_zeros_has_the_published_value():
    """The features of test_creff.py after their step, then one step of 0.01."""
    moved = [[1 - 0.0120610740, 1 + 0.0158930058], [0.5 - 0.0052762878, 0.0081697080]]
    moved += [[-1 + 0.0264444818, 1 + 0.0403947224], [0.1708722373, 0.2 + 0.0815438685]]
    start = Head(torch.zeros(2, 2).double(), torch.zeros(2).double())
    head = Retraining(1, 4, 0.01)(
        start,
        torch.tensor(moved, dtype=torch.float64),
        torch.tensor([0, 0, 1, 1]),
        lambda epoch: np.arange(4),
    )
    row = [0.002856682, -0.000372345]
    assert head.weight[0].tolist() == pytest.approx(row, abs=1e-9)
    assert head.weight[1].tolist() == pytest.approx([-row[0], -row[1]], abs=1e-9)
    assert head.bias.tolist() == pytest.approx([0, 0])
    assert not start.weight.any()


def test_it_takes_the_steps_of_torchs_sgd():
    rng = np.random.default_rng(0)
    features = torch.from_numpy(rng.normal(size=(23, 4)))
    labels = torch.from_numpy(rng.integers(0, 3, 23))
    linear = nn.Linear(4, 3).double()
    start = Head(linear.weight.detach().clone(), linear.bias.detach().clone())
    orders = [rng.permutation(23) for _ in range(3)]
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    for order in orders:
        for batch in torch.from_numpy(order).split(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(linear(features[batch]), labels[batch]).backward()
            optimizer.step()
    head = Retraining(3, 5, 0.1)(start, features, labels, lambda epoch: orders[epoch])
    torch.testing.assert_close(head.weight, linear.weight.detach())
    torch.testing.assert_close(head.bias, linear.bias.detach())
    still = Retraining(0, 5, 0.1)(start, features, labels, lambda epoch: orders[epoch])
    assert torch.equal(still.weight, start.weight)


@pytest.mark.parametrize("values", [(-1, 5, 0.1), (1, 0, 0.1), (1, 5, 0.0), (1, 5, float("inf"))])
def test_a_bad_value_is_refused(values):
    with pytest.raises(ValueError, match=r"must be|learning rate"):
        Retraining(*values)
