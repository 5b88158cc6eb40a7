"""Federated averaging in FedLab's standalone pipeline: one process, all cores as threads."""

# ruff: noqa: E402
from __future__ import annotations

import sys
from types import ModuleType

import torch
import work

# Its data sets, imported with all else but not used here, want a library that is not installed.
sys.modules["torchvision"] = ModuleType("torchvision")
for part in ("datasets", "transforms"):
    made = sys.modules[f"torchvision.{part}"] = ModuleType(f"torchvision.{part}")
    setattr(sys.modules["torchvision"], part, made)

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from network import SmallNetwork


class Trainer(SGDSerialClientTrainer):
    """Clients one after another, by the common epoch."""

    def local_process(self, payload, id_list):
        """Train the clients of a round."""
        self.proof = work.Proof()
        for client in id_list:
            self.set_model(payload[0])
            self.proof += work.train(self._model, client, options.images)
            self.cache.append([self.model_parameters])


class Reported(StandalonePipeline):
    """The package's own loop without the evaluation that it leaves to users; prints each round."""

    def main(self):
        """Run all rounds."""
        while self.handler.if_stop is False:
            chosen = self.handler.sample_clients()
            self.trainer.local_process(self.handler.downlink_package, chosen)
            for package in self.trainer.uplink_package:
                self.handler.load(package)
            work.tell(self.handler.round, self.trainer.proof)


if __name__ == "__main__":
    options = work.read_options()
    torch.set_num_threads(options.cores)
    model = SmallNetwork()
    handler = SyncServerHandler(model, options.rounds, sample_ratio=1.0)
    trainer = Trainer(model, options.clients)
    handler.num_clients = options.clients
    Reported(handler, trainer).main()
