"""The server app: rounds of federated averaging; the model is saved at the end."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import Net
from fedbb.flower import ClientBalancedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the model over all sites."""
    torch.manual_seed(0)
    fraction = float(context.run_config["fraction-evaluate"])
    strategy = ClientBalancedStrategy(FedAvg(fraction_evaluate=fraction))
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": float(context.run_config["learning-rate"])}),
        num_rounds=int(context.run_config["num-server-rounds"]),
    )
    torch.save(result.arrays.to_torch_state_dict(), str(context.run_config["save-to"]))
