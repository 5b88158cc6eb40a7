"""A FedAvg job of NVFlare with client weights from CBR, in NVFlare's simulator.

Run it with `python examples/nvflare/job.py`. The weights of each round are in the server's log
and in `client_weights.csv`.
"""

import argparse
from pathlib import Path

import torch
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from task import Net

from fedbb.nvflare import ClientBalancedAggregator

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default="nvflare-run", help="where the simulator works")
    parser.add_argument("--transfer", choices=["FULL", "DIFF"], default="FULL")
    parser.add_argument("--max-weight", type=float, default=0.5)
    options = parser.parse_args()
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # A job names the class of its model, not the weights: without a file they would be random.
    torch.manual_seed(0)
    torch.save(Net().state_dict(), folder / "initial.pt")
    recipe = FedAvgRecipe(
        name="balanced",
        model=Net(),
        initial_ckpt=str(folder / "initial.pt"),
        min_clients=options.sites,
        num_rounds=options.rounds,
        train_script=str(HERE / "client.py"),
        train_args=f"--sites {options.sites}",
        params_transfer_type=options.transfer,
        aggregator=ClientBalancedAggregator(max_weight=options.max_weight),
    )
    run = recipe.execute(SimEnv(num_clients=options.sites, workspace_root=str(folder)))
    print(f"results: {run.get_result()}")


if __name__ == "__main__":
    main()
