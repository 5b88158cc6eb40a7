"""pFedLA (Ma et al. 2022): every client starts from its own mixture of all models, layer by layer.

The server keeps the latest model of every client and, for each client, a hypernetwork whose outputs
are the weights of that mixture. The gradient of the weights has the sign by which the mixture moves
towards the model that the client's training ended at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.methods.record import Method
from fedbb.records import IntArray, ModelState, RunFacts, Tensors
from fedbb.rng import stream
from fedbb.state import BUFFERS, PARAMS, add_prefix, flatten_state, select

Layers = Literal["module", "block"]

HIDDEN = 3
"""Hidden layers of a hypernetwork."""

MODELS, HYPERNETS = "models.", "hypernets."


@dataclass(frozen=True)
class LayerMixing(ServerStep):
    """What the server of pFedLA keeps and does.

    Args:
        hn_lr: learning rate of the hypernetworks.
        width: size of a client's embedding and of the hidden layers.
        layers: parameters with one weight: those of a "module" (weight and bias), or of a "block",
            the first part of their names.
        kept_layers: layers that stay the client's own, by its largest own weights (HeurpFedLA).

    Raises:
        ValueError: a value is out of range.
    """

    hn_lr: float = 5e-3
    width: int = 100
    layers: Layers = "module"
    kept_layers: int = 0
    name: ClassVar[str] = "pfedla"
    sees_updates: ClassVar[bool] = True
    shares_model: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.hn_lr < math.inf:
            raise ValueError(f"hn_lr must be a finite number of at least 0, not {self.hn_lr}")
        if self.width < 1 or self.kept_layers < 0:
            raise ValueError("width must be at least 1, and kept_layers at least 0")
        if self.layers not in get_args(Layers):
            raise ValueError(f"layers must be one of {', '.join(get_args(Layers))}")

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return the first model for every client, and its hypernetwork."""
        number = facts.clients
        models = {
            name: tensor.unsqueeze(0).repeat(number, *(1 for _ in tensor.shape))
            for name, tensor in flatten_state(first).items()
        }
        layers = len(self.layers_of(first))
        drawn = [
            draw_hypernet(stream(facts.seed, "hypernet", client), number, layers, self.width)
            for client in range(number)
        ]
        nets = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
        return add_prefix(MODELS, models) | add_prefix(HYPERNETS, nets)

    def start(self, state: Tensors, client: int, model: ModelState) -> ModelState:
        """Return the client's mixture of all models; buffers are those of its own model."""
        models = select(state, MODELS)
        shares, _ = self._shares(_of_client(select(state, HYPERNETS), client), client)
        params: dict[str, Tensor] = {}
        for layer, names in enumerate(self.layers_of(model).values()):
            for name in names:
                params[name] = mix_rows(models[PARAMS + name], shares[layer].tolist())
        buffers = {name: models[BUFFERS + name][client].clone() for name in model.buffers}
        return ModelState({name: params[name] for name in model.params}, buffers)

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the state with the trained models, after one step of their hypernetworks."""
        models, nets = select(state, MODELS), select(state, HYPERNETS)
        moved = {name: tensor.clone() for name, tensor in nets.items()}
        kept = {name: tensor.clone() for name, tensor in models.items()}
        for client in sorted(turn.updates):
            trained = turn.updates[client]
            net = self._descend(_of_client(nets, client), client, models, turn.before, trained)
            for name, tensor in net.items():
                moved[name][client] = tensor
            for name, tensor in flatten_state(trained).items():
                kept[name][client] = tensor
        return add_prefix(MODELS, kept) | add_prefix(HYPERNETS, moved), turn.merged

    def layers_of(self, model: ModelState) -> dict[str, list[str]]:
        """Return the parameters of each layer, in an order that files of models keep."""
        found: dict[str, list[str]] = {}
        for name in sorted(model.params):
            layer = name.rpartition(".")[0] if self.layers == "module" else name.split(".")[0]
            found.setdefault(layer, []).append(name)
        return found

    def _shares(self, net: Tensors, client: int) -> tuple[Tensor, Tensor]:
        """Return the weights (L, K) of a client's mixture, and which layers they are learnt for."""
        outputs = run_hypernet(net)
        shares, learnt = layer_shares(outputs, client)
        if self.kept_layers:
            order = torch.argsort(shares[:, client], descending=True, stable=True)
            own = order[: self.kept_layers]
            learnt[own] = False
            shares = shares.clone()
            shares[own] = F.one_hot(torch.tensor(client), shares.shape[1]).to(shares.dtype)
        return shares, learnt

    def _descend(
        self,
        net: Tensors,
        client: int,
        models: Tensors,
        like: ModelState,
        trained: ModelState,
    ) -> dict[str, Tensor]:
        """Return a hypernetwork after a step towards the model that training ended at."""
        leaves = {name: tensor.double().requires_grad_() for name, tensor in net.items()}
        with torch.enable_grad():
            shares, learnt = self._shares(leaves, client)
        slopes = torch.zeros_like(shares)
        with torch.no_grad():
            for layer, names in enumerate(self.layers_of(like).values()):
                for name in names:
                    every, row = models[PARAMS + name], shares[layer].tolist()
                    # Where the client started minus where it ended, along each client's model.
                    gap = mix_rows(every, row).double() - trained.params[name].double()
                    slopes[layer] += every.double().flatten(1) @ gap.flatten()
            slopes[~learnt] = 0.0
        if not learnt.any():
            return dict(net)
        names = list(leaves)
        found = torch.autograd.grad(shares, [leaves[name] for name in names], slopes)
        return {
            name: (leaves[name].detach() - self.hn_lr * slope).to(net[name].dtype)
            for name, slope in zip(names, found, strict=True)
        }


def draw_hypernet(
    rng: np.random.Generator, clients: int, layers: int, width: int
) -> dict[str, Tensor]:
    """Return a new hypernetwork: torch's own initial values, and heads that are not negative."""
    bound = 1 / math.sqrt(width)
    net = {"embedding": rng.normal(size=width)}
    for number in range(HIDDEN):
        net[f"{number}.weight"] = rng.uniform(-bound, bound, (width, width))
        net[f"{number}.bias"] = rng.uniform(-bound, bound, width)
    net["heads.weight"] = rng.uniform(0, 1, (layers, clients, width))
    net["heads.bias"] = np.zeros((layers, clients))
    return {name: torch.from_numpy(values).float() for name, values in net.items()}


def run_hypernet(net: Tensors) -> Tensor:
    """Return the outputs u (L, K) of a hypernetwork, in float64."""
    features = net["embedding"].double()
    number = 0
    while f"{number}.weight" in net:
        weight, bias = net[f"{number}.weight"].double(), net[f"{number}.bias"].double()
        features = F.relu(weight @ features + bias)
        number += 1
    return net["heads.weight"].double() @ features + net["heads.bias"].double()


def layer_shares(outputs: Tensor, client: int) -> tuple[Tensor, Tensor]:
    """Return ReLU(u)/Σ ReLU(u) of each row, and which rows that is defined for.

    A row without a positive output is the client's own model.
    """
    positive = F.relu(outputs)
    total = positive.sum(dim=1, keepdim=True)
    learnt = total.squeeze(1) > 0
    own = F.one_hot(torch.tensor(client), outputs.shape[1]).to(outputs.dtype)
    safe = torch.where(total > 0, total, torch.ones_like(total))
    return torch.where(learnt.unsqueeze(1), positive / safe, own), learnt


def mix_rows(rows: Tensor, weights: Sequence[float]) -> Tensor:
    """Return Σ w·row in float64 in the order of the rows, rounded once, as models are merged."""
    total = rows[0].double() * weights[0]
    for row, weight in zip(rows[1:], weights[1:], strict=True):
        total.add_(row.double(), alpha=weight)
    return total.to(rows.dtype)


def _of_client(nets: Tensors, client: int) -> dict[str, Tensor]:
    return {name: tensor[client] for name, tensor in nets.items()}


def pfedla(
    *,
    hn_lr: float = LayerMixing.hn_lr,
    width: int = LayerMixing.width,
    layers: Layers = LayerMixing.layers,
    kept_layers: int = LayerMixing.kept_layers,
) -> Method:
    """A mixture of all clients' models for each, by layers.

    Args:
        hn_lr: learning rate of the hypernetworks at the server.
        width: size of a client's embedding and of the hidden layers.
        layers: what has a weight of its own: a "module", or a "block" of the network.
        kept_layers: layers that stay each client's own (HeurpFedLA).
    """
    return Method("pFedLA", server=(LayerMixing(hn_lr, width, layers, kept_layers),))
