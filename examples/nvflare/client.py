"""The training script of a site: receive the model, train it on the site's digits, send it back."""

import argparse

import nvflare.client as flare
import torch
from task import CLASSES, Net, load_data
from torch import Tensor, nn

from fedbb import PNBLoss
from fedbb.nvflare import report_label_statistics


def main() -> None:
    """Answer the server until the job ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    flare.init()
    site = int(flare.get_site_name().rpartition("-")[2]) - 1
    x, y, test_x, test_y = load_data(site, options.sites)
    model = Net()
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        model.load_state_dict(
            {name: torch.as_tensor(value) for name, value in received.params.items()}
        )
        accuracy = evaluate(model, test_x, test_y)
        torch.manual_seed(1000 * site + received.current_round)  # repeatable
        train(model, x, y, options)
        reply = flare.FLModel(params=model.state_dict(), metrics={"accuracy": accuracy})
        flare.send(report_label_statistics(reply, y, classes=CLASSES))


def train(model: nn.Module, x: Tensor, y: Tensor, options: argparse.Namespace) -> None:
    criterion = PNBLoss.from_targets(y, classes=CLASSES, mu="unit")
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    model.train()
    for _ in range(options.epochs):
        for batch in torch.randperm(len(x)).split(32):
            if len(batch) > 1:  # batch normalization needs two samples
                optimizer.zero_grad()
                criterion(model(x[batch]), y[batch]).backward()
                optimizer.step()


def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the accuracy of the received model on the site's own test digits."""
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


if __name__ == "__main__":
    main()
