"""FedFusion, a reconstruction: clients weighed by the components of their norm statistics.

The formulas of the paper (Duan, Li and Lu 2023) are not public, and its repository leaves the
essential functions empty. What is here follows its abstract: a variational autoencoder infers, from
a few statistics of the local models, of which components the clients' distributions are made.
Everything else is our assumption (docs/methods.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.adam import adam

from fedbb.aggregation.robust import Uniform
from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.methods.record import Method
from fedbb.models.base import name_of, norm_names
from fedbb.records import FloatArray, IntArray, ModelState, RunFacts, Tensors
from fedbb.rng import stream
from fedbb.state import add_prefix, mix, select

Mixing = Literal["alike", "by-size"]

STATISTICS = ("running_mean", "running_var")
AFFINE = ("weight", "bias")
MOMENTS = ("exp_avg.", "exp_avg_sq.", "step.")

WIDTHS = (256, 128)
"""Widths of the encoder's layers; the decoder has them in reverse."""

LATENTS = 32
LR, DECAY, TEMPERATURE = 1e-3, 1e-4, 1.0
LEAST_DEVIATION, LEAST_MASS = 1e-6, 1e-12


def component_weights(memberships: FloatArray, mixing: Mixing = "alike") -> FloatArray:
    """Return the weights (K,) of clients from their memberships (K, M) in components.

    With "alike" every component counts alike, and a client by its share of each:
    ω_k = (1/M)·Σ_m z_km / Σ_j z_jm. With "by-size" a component counts by its members, which gives
    every client the same weight, whatever the memberships.

    >>> component_weights(np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])).round(4).tolist()
    [0.2917, 0.3056, 0.4028]
    """
    if mixing == "by-size":
        return np.full(len(memberships), 1 / len(memberships))
    mass = np.maximum(memberships.sum(axis=0), LEAST_MASS)
    return np.asarray((memberships / mass).mean(axis=1))


def standardize(rows: FloatArray) -> FloatArray:
    """Return rows (K, N) with mean 0 and deviation 1 over the clients in every column."""
    deviation = np.maximum(rows.std(axis=0), LEAST_DEVIATION)
    return np.asarray((rows - rows.mean(axis=0)) / deviation)


@dataclass(frozen=True)
class Components(ServerStep):
    """Merges the clients' models by components that an autoencoder finds in their norm layers.

    Args:
        components: the number of components, M; with one, all clients have the same weight.
        steps: full-batch steps of the autoencoder in a round.
        kl: factor on the divergence of memberships from even ones.
        mixing: "alike" or "by-size", see `component_weights`.

    Raises:
        ValueError: a value is out of range.
    """

    components: int = 15
    steps: int = 30
    kl: float = 0.0
    mixing: Mixing = "alike"
    name: ClassVar[str] = "components"
    sees_updates: ClassVar[bool] = True
    sets_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.components < 1 or self.steps < 0:
            raise ValueError("components must be at least 1 and steps at least 0")
        if not 0.0 <= self.kl < math.inf:
            raise ValueError(f"kl must be a finite number of at least 0, not {self.kl}")
        if self.mixing not in ("alike", "by-size"):
            raise ValueError(f'mixing is "alike" or "by-size", not {self.mixing!r}')

    @property
    def is_plain(self) -> bool:
        """Whether all clients have the same weight."""
        return self.components == 1 or self.mixing == "by-size"

    def check_network(self, network: nn.Module) -> None:
        """Refuse a network without batch normalization, of which there are no statistics."""
        if not norm_names(network):
            raise ValueError(
                "it compares the running statistics of batch normalization, and "
                f"{name_of(network)} has none"
            )

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return the autoencoder's first weights, and the moments of its optimizer."""
        if self.is_plain or not facts.norms:
            return {}
        inputs = len(_entries(first, facts, (*STATISTICS, *AFFINE)))
        outputs = len(_entries(first, facts, STATISTICS))
        codes = LATENTS * self.components
        heads = {f"{head}.": (WIDTHS[-1], codes) for head in ("mean", "spread", "category")}
        shapes = {
            "encoder-1.": (inputs, WIDTHS[0]),
            "encoder-2.": WIDTHS,
            **heads,
            "decoder-1.": (codes, WIDTHS[1]),
            "decoder-2.": WIDTHS[::-1],
            "decoder-3.": (WIDTHS[0], outputs),
        }
        rng = stream(facts.seed, "vae")
        weights: dict[str, Tensor] = {}
        for name, (wide, out) in shapes.items():
            bound = 1 / math.sqrt(wide)
            weights[f"net.{name}weight"] = _float(rng.uniform(-bound, bound, (out, wide)))
            weights[f"net.{name}bias"] = _float(rng.uniform(-bound, bound, out))
        moments = {
            kind + name: torch.zeros(()) if kind == "step." else torch.zeros_like(tensor)
            for name, tensor in select(weights, "net.").items()
            for kind in MOMENTS
        }
        return weights | moments

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Train the autoencoder on the round's clients, and merge their models by its weights."""
        updates = {client: turn.updates[client] for client in sorted(turn.updates)}
        if not state or not updates:
            return state, turn.merged
        net = select(state, "net.")
        moments = {kind: select(state, kind) for kind in MOMENTS}
        rows, wanted = (
            _float(
                standardize(np.stack([_entries(m, turn.facts, kinds) for m in updates.values()]))
            )
            for kinds in ((*STATISTICS, *AFFINE), STATISTICS)
        )
        after = self._train(
            {name: t.clone() for name, t in net.items()}, moments, rows, wanted, turn
        )
        with torch.no_grad():
            shares = _encode(after["net."], rows, self.components)[2].softmax(dim=2).mean(dim=1)
        weights = component_weights(shares.double().numpy(), self.mixing)
        model = mix(updates.values(), weights / weights.sum())
        kept: dict[str, Tensor] = {}
        for kind, tensors in after.items():
            kept |= add_prefix(kind, tensors)
        return kept, model

    def _train(
        self,
        net: dict[str, Tensor],
        moments: Mapping[str, Tensors],
        rows: Tensor,
        wanted: Tensor,
        turn: Turn,
    ) -> dict[str, dict[str, Tensor]]:
        """Return the autoencoder and its moments after the steps of a round."""
        parameters = [tensor.requires_grad_() for tensor in net.values()]
        states = [[moments[kind][name].clone() for name in net] for kind in MOMENTS]
        rng = stream(turn.facts.seed, "vae", turn.round)
        for _ in range(self.steps):
            loss = self._loss(net, rows, wanted, rng)
            gradients = list(torch.autograd.grad(loss, parameters))
            with torch.no_grad():
                adam(
                    parameters,
                    gradients,
                    states[0],
                    states[1],
                    [],
                    states[2],
                    foreach=False,
                    fused=False,
                    amsgrad=False,
                    beta1=0.9,
                    beta2=0.999,
                    lr=LR,
                    weight_decay=DECAY,
                    eps=1e-8,
                    maximize=False,
                )
        trained = {name: tensor.detach() for name, tensor in net.items()}
        kept = {
            kind: dict(zip(net, tensors, strict=True))
            for kind, tensors in zip(MOMENTS, states, strict=True)
        }
        return {"net.": trained, **kept}

    def _loss(self, net: Tensors, rows: Tensor, wanted: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the error of reconstruction, and the divergence of memberships from even ones."""
        mean, spread, category = _encode(net, rows, self.components)
        code = mean + spread * _float(rng.standard_normal(mean.shape))
        chosen = (category + _float(rng.gumbel(size=category.shape))) / TEMPERATURE
        hidden = (chosen.softmax(dim=2) * code).flatten(1)
        for layer in ("decoder-1.", "decoder-2."):
            hidden = F.leaky_relu(_linear(net, layer, hidden))
        loss = F.mse_loss(_linear(net, "decoder-3.", hidden), wanted)
        if self.kl:
            log_shares = category.log_softmax(dim=2)
            uneven = (log_shares.exp() * (log_shares + math.log(self.components))).sum(dim=2)
            loss = loss + self.kl * uneven.mean()
        return loss


def _encode(net: Tensors, rows: Tensor, components: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, spread and category logits of each client, all (K, D, M)."""
    hidden = F.leaky_relu(_linear(net, "encoder-1.", rows))
    hidden = F.leaky_relu(_linear(net, "encoder-2.", hidden))
    mean, spread, category = (
        _linear(net, head, hidden).view(len(rows), LATENTS, components)
        for head in ("mean.", "spread.", "category.")
    )
    return mean, F.softplus(spread), category


def _linear(net: Tensors, layer: str, rows: Tensor) -> Tensor:
    return F.linear(rows, net[f"{layer}weight"], net[f"{layer}bias"])


def _entries(model: ModelState, facts: RunFacts, kinds: tuple[str, ...]) -> FloatArray:
    """Return these entries of the first and the last norm layer in one vector, in float64."""
    named = {**model.params, **model.buffers}
    layers = dict.fromkeys((facts.norms[0], facts.norms[-1]))
    found = [named.get(f"{layer}.{kind}".lstrip(".")) for layer in layers for kind in kinds]
    return np.concatenate([t.double().numpy().ravel() for t in found if t is not None])


def _float(values: FloatArray) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def fedfusion(
    *,
    components: int = Components.components,
    steps: int = Components.steps,
    kl: float = Components.kl,
    mixing: Mixing = Components.mixing,
) -> Method:
    """Reconstruction: client weights by statistics of norm layers.

    Args:
        components: number of components; with one, all clients count alike.
        steps: steps of the server's autoencoder in a round.
        kl: factor that keeps memberships even.
        mixing: "alike": every component counts alike; "by-size": all clients count alike.
    """
    return Method(
        "FedFusion (reconstruction)",
        weighting=Uniform(),
        server=(Components(components, steps, kl, mixing),),
    )
