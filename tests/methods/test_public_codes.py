"""FedRS, Fed-ROD and CCVR beside public code: numbers that it gave on the inputs below.

Run were lxcnju/FedRepo (the authors of FedRS), fluke (FedRS), PFLlib (Fed-ROD) and FL-bench (CCVR),
by plain SGD at a rate of 0.1 on one batch.
"""

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.classifiers.head import Head
from fedbb.classifiers.retraining import Retraining
from fedbb.methods.ccvr import ClassMoments, class_moments
from fedbb.records import Task
from fedbb.runs.folder import RunFolder
from helpers.batches import counts_of


def wave(*shape, start, scale=1.0):
    """Numbers that any machine can make again."""
    places = torch.arange(int(np.prod(shape)), dtype=torch.float64)
    return (scale * torch.sin(start + 1.7 * places)).reshape(shape).float()


INPUTS = wave(12, 4, start=0.3, scale=1.5)
LABELS = torch.tensor([0] * 7 + [1] * 4 + [2])  # the fourth class is absent
STEPS = 3


def network(bias=True):
    layers = nn.Linear(4, 3), nn.Linear(3, 4, bias=bias)
    for layer, start in zip(layers, (1.0, 3.0), strict=True):
        layer.weight.data = wave(*layer.weight.shape, start=start)
        if layer.bias is not None:
            layer.bias.data = wave(*layer.bias.shape, start=start + 1)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1])


def train(method, out):
    data = fedbb.Dataset.from_arrays(
        INPUTS.numpy(), LABELS.numpy(), INPUTS.numpy(), LABELS.numpy(), classes=list("abcd")
    )
    clients = fedbb.partition.from_owners(data, np.zeros(len(LABELS), dtype=int))
    local = fedbb.LocalConfig(epochs=STEPS, batch_size=12, lr=0.1, momentum=0.0, weight_decay=0.0)
    return fedbb.simulate(
        data, clients, model=network, method=method, local=local, rounds=1, bootstrap=0, out=out
    )


def close(tensor, *rows):
    np.testing.assert_allclose(tensor.detach().numpy().reshape(len(rows), -1), rows, atol=2e-6)


def test_fedrs_by_counts_is_the_authors_code():
    model = network(bias=False)  # their classifier has none
    loss = fedbb.methods.fedrs(alpha=0.5, scaling="counts").loss
    bound = loss.bind(counts_of(7, 4, 1, 0), Task.MULTICLASS)
    descent = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        descent.zero_grad()
        bound(model(INPUTS), LABELS).backward()
        descent.step()
    close(
        model[2].weight,
        (0.2658780, -0.8716162, 0.2283499),
        (0.8987916, -0.4254576, -0.9242126),
        (0.5860518, 0.7016575, -0.7961804),
        (-0.5341743, 0.9048944, 0.2777814),
    )


def test_fedrs_is_flukes_where_only_absent_classes_are_scaled(tmp_path):
    head = train(fedbb.methods.fedrs(alpha=0.5), tmp_path / "run").model[2]
    close(
        head.weight,
        (0.2658280, -0.8861974, 0.2166638),
        (0.8965906, -0.4376689, -0.9413619),
        (0.5504758, 0.6824565, -0.8030943),
        (-0.5272142, 0.9118897, 0.2823214),
    )
    close(head.bias, (-0.6207048, -0.5040405, 0.7766743, 0.2887439))


def test_fed_rod_with_a_copied_head_is_pfllibs(tmp_path):
    run = train(fedbb.methods.fed_rod(start="copy"), tmp_path / "run")
    own = RunFolder(run.folder).client_states.load(0, 1).tensors
    close(
        run.model[2].weight,
        (0.2684994, -0.8655747, 0.2271893),
        (0.8771011, -0.4407140, -0.9370937),
        (0.5574828, 0.6627676, -0.8273506),
        (-0.5223086, 0.9129453, 0.2870527),
    )
    close(run.model[2].bias, (-0.6957955, -0.5456019, 0.8326175, 0.3190984))
    close(
        own["personal-head.weight"],
        (0.2706040, -0.8863549, 0.2149965),
        (0.9015517, -0.4317905, -0.9376522),
        (0.5471246, 0.6903515, -0.7860728),
        (-0.5385056, 0.8972181, 0.2585261),
    )
    close(own["personal-head.bias"], (-0.6083492, -0.4910890, 0.7475756, 0.2621810))


FL_BENCH = {
    0: (1.7937367, -0.0880273, -1.7710530, 1.8271890, -0.3828192, 1.8697013),
    1: (2.1945634, -0.5087281, -2.0634694, 1.8057137, 0.0434155, 2.0522819),
    2: (1.9982330, -0.0952580, -1.9736862, 1.9430420, -0.4054426, 2.0781641),
}
"""Upper triangles of the covariances that FL-bench's server has of the clients below."""


@pytest.mark.parametrize("label", FL_BENCH)
def test_ccvrs_covariance_is_fl_benchs_but_for_its_biased_clients(label):
    embeddings = wave(24, 3, start=0.5, scale=2.0)
    labels = torch.tensor([0] * 9 + [1] * 6 + [2] * 5 + [0] * 3 + [1])
    parts = [
        class_moments(embeddings[rows], labels[rows], 4) for rows in (slice(0, 20), slice(20, 24))
    ]
    sums = {n: parts[0].tensors()[n] + parts[1].tensors()[n] for n in parts[0].tensors()}
    _, covariance = ClassMoments.from_tensors(sums).gaussian(label)
    np.testing.assert_allclose(covariance, np.cov(embeddings[labels == label].T), atol=1e-6)
    # Clients there divide by n_k, and the server counts their covariances n_k − 1 times.
    for rows in (slice(0, 20), slice(20, 24)):
        own = embeddings[rows][labels[rows] == label].double()
        if len(own):
            left_out = (own - own.mean(0)).T @ (own - own.mean(0)) / len(own)
            covariance = covariance - left_out / (int((labels == label).sum()) - 1)
    found = covariance[torch.triu_indices(3, 3).unbind()]
    np.testing.assert_allclose(found, FL_BENCH[label], atol=2e-6)


def test_ccvr_trains_the_classifier_as_fl_bench_does():
    trained = network()[2]
    head = Retraining(epochs=4, batch_size=20, lr=0.1)(
        Head(trained.weight.data, trained.bias.data),
        wave(20, 3, start=0.9),
        torch.arange(20) % 4,
        lambda epoch: np.arange(20),
    )
    close(
        head.weight,
        (0.1658557, -0.9597344, 0.0814573),
        (0.9407163, -0.3333477, -0.8548163),
        (0.5308016, 0.6925220, -0.7092569),
        (-0.4565989, 0.8699843, 0.2324135),
    )
    close(head.bias, (-0.7073978, -0.5016658, 0.8341397, 0.2852423))
