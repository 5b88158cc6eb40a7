"""Federated averaging in BlazeFL: clients in threads, or in processes with `--mode process`.

With `--channels-last` the network and the images have the layout that fedbb uses. BlazeFL gives the
parallel loop and leaves training and averaging to the user, who would write them as here.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
from dataclasses import dataclass

import torch
import work
from blazefl.core import ProcessPoolClientTrainer, ThreadPoolClientTrainer
from network import SmallNetwork
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters


@dataclass
class Package:
    """A model as one vector; from a client also what proves its training."""

    model: Tensor
    images: int = 0
    serials: int = 0
    loss: float = 0.0


@dataclass
class Task:
    """What a worker process needs to know of a client."""

    client: int
    images: int
    channels_last: bool


def to_vector(network: nn.Module) -> Tensor:
    # torch's own function refuses parameters in channels-last.
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()])


def train(task: Task, payload: Package) -> Package:
    network = SmallNetwork()
    vector_to_parameters(payload.model.clone(), network.parameters())
    if task.channels_last:
        network = network.to(memory_format=torch.channels_last)
        work.use_channels_last()
    proof = work.train(network, task.client, task.images)
    trained = to_vector(network)
    return Package(trained, proof.images, proof.serials, proof.loss)


class Threads(ThreadPoolClientTrainer):
    """Clients in threads of one process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.num_parallels, self.device, self.device_count = options.cores, "cpu", 0
        self.cache: list[Package] = []
        self.stop_event = threading.Event()
        self.options = options

    def worker(self, cid, device, payload, stop_event):
        """Train one client."""
        return train(Task(cid, self.options.images, self.options.channels_last), payload)

    def uplink_package(self):
        """Hand out the models of the round."""
        packages, self.cache = self.cache, []
        return packages


class Processes(ProcessPoolClientTrainer):
    """Clients in a pool of processes, which BlazeFL starts anew for every round."""

    def __init__(self, options: argparse.Namespace, size: int) -> None:
        self.num_parallels, self.device, self.device_count = options.cores, "cpu", 0
        self.cache: list[Package] = []
        self.manager = multiprocessing.Manager()
        self.stop_event = self.manager.Event()
        self.options, self.size = options, size

    def get_client_config(self, cid):
        """Return what the worker needs to know of the client."""
        return Task(cid, self.options.images, self.options.channels_last)

    def prepare_uplink_package_buffer(self):
        """Return a model in which the worker puts its own."""
        return Package(torch.zeros(self.size))

    def convert_buffer_to_uplink(self, buffer):
        """Return the model of a worker, which is one already."""
        return buffer

    @staticmethod
    def worker(config, payload, device, stop_event, *, shm_buffer=None):
        """Train one client."""
        torch.set_num_threads(1)
        trained = train(config, payload)
        shm_buffer.model.copy_(trained.model)
        shm_buffer.images, shm_buffer.serials = trained.images, trained.serials
        shm_buffer.loss = trained.loss
        return shm_buffer

    uplink_package = Threads.uplink_package


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--mode", choices=("thread", "process"), default="thread")
    parser.add_argument("--channels-last", action="store_true")
    own, rest = parser.parse_known_args()
    options = work.read_options(rest)
    options.channels_last = own.channels_last
    torch.set_num_threads(1)  # as many clients at once as there are cores
    vector = to_vector(SmallNetwork())
    is_threads = own.mode == "thread"
    trainer = Threads(options) if is_threads else Processes(options, len(vector))
    for number in range(options.rounds):
        trainer.local_process(Package(vector), list(range(options.clients)))
        packages = trainer.uplink_package()
        weights = torch.tensor([float(package.images) for package in packages])
        vector = (torch.stack([p.model for p in packages]).T @ (weights / weights.sum())).clone()
        proofs = [work.Proof(p.images, p.serials, p.loss) for p in packages]
        work.tell(number + 1, sum(proofs, work.Proof()))
    getattr(trainer, "shutdown", lambda: None)()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
