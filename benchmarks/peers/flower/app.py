"""Federated averaging in Flower's simulation: its own strategy, one Ray worker per core."""

from __future__ import annotations

import os

os.environ.update(
    FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0"
)

import torch
import work
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from network import SmallNetwork

client_app, server_app = ClientApp(), ServerApp()
options = None


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    model = SmallNetwork()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images = message.content["config"]["images"]
    proof = work.train(model, int(context.node_config["partition-id"]), images)
    metrics = {"num-examples": proof.images, "serials": proof.serials, "loss": proof.loss}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(content), reply_to=message)


class Reported(FedAvg):
    """Federated averaging that tells when a round is done."""

    def aggregate_train(self, server_round, replies):
        """Merge the replies and tell of the round."""
        replies = list(replies)
        merged = super().aggregate_train(server_round, replies)
        proof = work.Proof()
        for reply in replies:
            metrics = reply.content["metrics"]
            proof += work.Proof(
                int(metrics["num-examples"]), int(metrics["serials"]), metrics["loss"]
            )
        work.tell(server_round, proof)
        return merged


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = Reported(
        fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=options.clients
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(SmallNetwork().state_dict()),
        train_config=ConfigRecord({"images": options.images}),
        num_rounds=options.rounds,
    )


if __name__ == "__main__":
    options = work.read_options()
    run_simulation(
        server_app,
        client_app,
        num_supernodes=options.clients,
        backend_config={
            "init_args": {"num_cpus": options.cores, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
