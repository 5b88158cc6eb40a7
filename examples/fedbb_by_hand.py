"""FedBB in plain PyTorch, without the engine of the package, beside what `simulate` makes."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import fedbb

CLIENTS, ROUNDS, EPOCHS, LR = 5, 3, 2, 0.05


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train on one client: PNB by the client's own counts, one step over all its data per epoch."""
    loss = fedbb.PNBLoss(torch.bincount(y, minlength=10).numpy(), mu=4.0)
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9, weight_decay=1e-4)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


images, digits = load_digits(return_X_y=True)
x, y = torch.tensor(images / 16).float(), torch.tensor(digits)
data = fedbb.Dataset.from_torch(TensorDataset(x, y), TensorDataset(x, y))
clients = fedbb.partition.dirichlet(data, clients=CLIENTS, concentration=0.3)
counts = np.stack([np.bincount(y[places], minlength=10) for places in clients.clients])
weights = fedbb.client_weights(counts)  # CBR: the more even a client's labels, the more it counts

start = nn.Linear(64, 10)
model = nn.Linear(64, 10)
model.load_state_dict(start.state_dict())
for _ in range(ROUNDS):
    merged = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for weight, places in zip(weights, clients.clients, strict=True):
        local = nn.Linear(64, 10)
        local.load_state_dict(model.state_dict())
        train(local, x[places], y[places])
        for total, parameter in zip(merged, local.parameters(), strict=True):
            total += weight * parameter.detach()
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(merged), model.parameters())

settings = fedbb.LocalConfig(epochs=EPOCHS, batch_size=len(y), lr=LR)
result = fedbb.simulate(data, clients, model=start, method="fedbb", local=settings, rounds=ROUNDS)
models = (nn.utils.parameters_to_vector(net.parameters()) for net in (model, result.model))
apart = float(torch.sub(*models).detach().abs().max())
print(f"accuracy {result.final['accuracy']:.3f}; largest difference of a weight {apart:.1e}")
