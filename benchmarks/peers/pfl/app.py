"""Federated averaging in Apple's pfl: alone with all cores as threads, or a process per core.

Started by torchrun it divides each round's users among the processes.
"""

from __future__ import annotations

import logging
import os

import torch
import work
from network import SmallNetwork
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional as F


class CountingNetwork(SmallNetwork):
    """The network with the loss and metrics that pfl asks of it, counting what it sees."""

    proof = work.Proof()

    def loss(self, images, labels, serials, is_eval=False):
        """Return the loss of a batch."""
        loss = F.cross_entropy(self(images), labels)
        self.proof += work.Proof(len(labels), int(serials.sum()), loss.item() * len(labels))
        return loss

    def metrics(self, images, labels, serials):
        """Return no metrics: nothing is evaluated."""
        return {}


class Teller(TrainingProcessCallback):
    """Tells of each round, with the proofs of all processes."""

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Tell of a round."""
        network = model.pytorch_model
        proof, network.proof = network.proof, work.Proof()
        parts = torch.tensor([proof.images, proof.serials, proof.loss], dtype=torch.float64)
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(parts)
        images, serials, loss = parts.tolist()
        if int(os.environ.get("RANK", "0")) == 0:
            work.tell(central_iteration + 1, work.Proof(int(images), int(serials), loss))
        return False, Metrics()


def descend(parameters, lr):
    return torch.optim.SGD(parameters, lr, work.MOMENTUM, weight_decay=work.DECAY)


def main() -> None:
    options = work.read_options()
    torch.set_num_threads(options.cores // int(os.environ.get("WORLD_SIZE", "1")) or 1)
    sampler = get_user_sampler("minimize_reuse", list(range(options.clients)))
    users = FederatedDataset(
        lambda user: Dataset(work.client_data(user, options.images), user_id=str(user)), sampler
    )
    network = CountingNetwork()
    model = PyTorchModel(
        network,
        local_optimizer_create=descend,
        central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
    )
    FederatedAveraging().run(
        backend=SimulatedBackend(users, users),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=options.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=options.clients,
            val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.RATE, local_batch_size=work.BATCH
        ),
        callbacks=[Teller()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    logging.disable(logging.INFO)
    main()
