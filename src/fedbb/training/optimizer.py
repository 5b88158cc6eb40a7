"""The optimizers of local training, and how many plain gradient steps their steps amount to."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

# torch's own rules without its Optimizer, whose first use imports the compiler: two seconds and
# seventy megabytes in every process.
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedbb.records import OptimizerState
from fedbb.state import at_rest
from fedbb.training.config import LocalConfig

MOMENTUM = "momentum"
ADAM = ("exp_avg", "exp_avg_sq", "step")
"""What an optimizer remembers of a parameter, by torch's names."""

SUMMED_STEPS = 1_000_000
"""Up to as many steps are summed one by one, which fixes the bits of models; a tenth of a second.
Larger numbers, which an untrusted client may declare, take the closed form."""


class LocalOptimizer:
    """SGD, Adam or AdamW by the settings of local training.

    Args:
        model: its parameters are moved.
        local: the optimizer and its settings.
        lr: the learning rate of the round.
        state: what an earlier optimizer remembered; empty to begin anew.
        further: further parameters that are moved, by name; those of penalties.
    """

    def __init__(
        self,
        model: nn.Module,
        local: LocalConfig,
        lr: float,
        state: OptimizerState | None = None,
        further: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        self.local, self.lr = local, lr
        self.parameters = {**dict(model.named_parameters()), **(further or {})}
        names = (MOMENTUM,) if local.optimizer == "sgd" else ADAM
        self._slots: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        for name, slot in self._slots.items():
            for parameter, tensor in (state or {}).get(name, {}).items():
                slot[parameter] = self._place(name, parameter, tensor)

    def zero_grad(self) -> None:
        """Drop the gradients of the step before."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = {name: p for name, p in self.parameters.items() if p.grad is not None}
        gradients = [parameter.grad for parameter in moved.values() if parameter.grad is not None]
        if self.local.optimizer == "sgd":
            self._sgd(moved, gradients)
        else:
            self._adam(moved, gradients)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return a copy of what is remembered, for the parameters that were ever moved."""
        return {
            name: {parameter: at_rest(tensor) for parameter, tensor in slot.items()}
            for name, slot in self._slots.items()
            if slot
        }

    def _sgd(self, moved: Mapping[str, Tensor], gradients: list[Tensor]) -> None:
        slot = self._slots[MOMENTUM]
        buffers = [slot.get(name) for name in moved]
        sgd(
            list(moved.values()),
            gradients,
            buffers,
            foreach=False,
            fused=False,
            weight_decay=self.local.weight_decay,
            momentum=self.local.momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=self.local.nesterov,
            maximize=False,
        )
        kept = zip(moved, buffers, strict=True)
        slot.update({name: buffer for name, buffer in kept if buffer is not None})

    def _adam(self, moved: Mapping[str, Tensor], gradients: list[Tensor]) -> None:
        for name, parameter in moved.items():
            if name not in self._slots["step"]:
                self._slots["step"][name] = torch.tensor(0.0, dtype=torch.float32)
                for slot in ("exp_avg", "exp_avg_sq"):
                    self._slots[slot][name] = torch.zeros_like(parameter)
        means, squares, steps = ([self._slots[slot][name] for name in moved] for slot in ADAM)
        first, second = self.local.betas
        adam(
            list(moved.values()),
            gradients,
            means,
            squares,
            [],
            steps,
            foreach=False,
            fused=False,
            decoupled_weight_decay=self.local.optimizer == "adamw",
            amsgrad=False,
            beta1=first,
            beta2=second,
            lr=self.lr,
            weight_decay=self.local.weight_decay,
            eps=self.local.eps,
            maximize=False,
        )

    def _place(self, slot: str, name: str, tensor: Tensor) -> Tensor:
        if slot == "step":  # torch counts on the CPU
            return tensor.clone()
        # In the parameter's own memory format, as the step would have made it.
        return torch.empty_like(self.parameters[name]).copy_(tensor)


def effective_steps(steps: int, local: LocalConfig) -> float:
    """Return how many plain gradient steps `steps` steps amount to (‖a‖₁ of FedNova).

    With momentum ρ a gradient goes on to act in later steps: after c ← ρ·c + 1 a step adds c, or
    1 + ρ·c with Nesterov's. One per step without momentum, and by convention under Adam, for which
    no such number is defined.

    >>> round(effective_steps(2, LocalConfig(momentum=0.9)), 6)
    2.9
    """
    if local.optimizer != "sgd":
        return float(steps)
    if local.momentum == 0:
        return float(steps)
    if steps <= SUMMED_STEPS:
        carried, total = 0.0, 0.0
        for _ in range(steps):
            carried = local.momentum * carried + 1.0
            total += 1.0 + local.momentum * carried if local.nesterov else carried
        return total
    # c is (1 - ρ^t) / (1 - ρ) at step t, and ρ^t adds up to ρ (1 - ρ^steps) / (1 - ρ).
    rho = local.momentum
    powers = rho * -math.expm1(steps * math.log(rho)) / (1.0 - rho)
    # No step carries less than 1, which cancellation at ρ near 1 must not hide.
    carried_sum = max(float(steps), (steps - powers) / (1.0 - rho))
    return steps + rho * carried_sum if local.nesterov else carried_sum
