"""The optimizer of local training, and how many plain gradient steps its steps amount to."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

# torch's own rule without its Optimizer, whose first use imports the compiler: two seconds and
# seventy megabytes in every process.
from torch.optim.sgd import sgd

from fedbb.state import at_rest
from fedbb.training.config import LocalConfig


class SGD:
    """SGD by the settings of local training, going on with an earlier momentum if one is given."""

    def __init__(
        self, model: nn.Module, local: LocalConfig, momentum: Mapping[str, Tensor] | None = None
    ) -> None:
        self.local = local
        self.parameters = dict(model.named_parameters())
        self.buffers: dict[str, Tensor] = {}
        if momentum is not None:
            for name, parameter in self.parameters.items():
                # In the parameter's own memory format, as the step would have made it.
                self.buffers[name] = torch.empty_like(parameter).copy_(momentum[name])

    def zero_grad(self) -> None:
        """Drop the gradients of the step before."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = {name: p for name, p in self.parameters.items() if p.grad is not None}
        buffers = [self.buffers.get(name) for name in moved]
        sgd(
            list(moved.values()),
            [parameter.grad for parameter in moved.values() if parameter.grad is not None],
            buffers,
            foreach=False,
            fused=False,
            weight_decay=self.local.weight_decay,
            momentum=self.local.momentum,
            lr=self.local.lr,
            dampening=0.0,
            nesterov=self.local.nesterov,
            maximize=False,
        )
        kept = zip(moved, buffers, strict=True)
        self.buffers.update({name: buffer for name, buffer in kept if buffer is not None})

    def momentum(self) -> dict[str, Tensor] | None:
        """Return a copy of the momentum by parameter, None if some parameter has none yet."""
        if len(self.buffers) < len(self.parameters):
            return None
        return {name: at_rest(buffer) for name, buffer in self.buffers.items()}


def effective_steps(steps: int, local: LocalConfig) -> float:
    """Return how many plain gradient steps `steps` steps amount to (‖a‖₁ of FedNova).

    With momentum ρ a gradient goes on to act in later steps: after c ← ρ·c + 1 a step adds c, or
    1 + ρ·c with Nesterov's. One per step without momentum.

    >>> round(effective_steps(2, LocalConfig(momentum=0.9)), 6)
    2.9
    """
    carried, total = 0.0, 0.0
    for _ in range(steps):
        carried = local.momentum * carried + 1.0
        total += 1.0 + local.momentum * carried if local.nesterov else carried
    return total
