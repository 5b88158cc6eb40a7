"""Model states: taken from a network, put back, mixed, and fingerprinted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedbb.records import FloatArray, ModelState


def snapshot(model: nn.Module) -> ModelState:
    """Return a copy of the model's parameters and persistent buffers, on the CPU."""
    # A shared parameter is trained under each of its names.
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    # state_dict holds references: without the clone, later training would change the snapshot.
    copies = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
    return ModelState(
        params={k: v for k, v in copies.items() if k in trained},
        buffers={k: v for k, v in copies.items() if k not in trained},
    )


def restore(model: nn.Module, state: ModelState) -> None:
    """Put a state into the model, in place."""
    model.load_state_dict({**state.params, **state.buffers})


def mix(states: Sequence[ModelState], weights: FloatArray) -> ModelState:
    """Return Σ w·θ, added up in float64 in the given order; integer entries take the largest value.

    Summed so, a mean of equal models in float32 or less is that model to the bit.
    """
    _check_alike(states)
    if len(weights) != len(states):
        raise ValueError(f"{len(weights)} weights do not fit {len(states)} states")
    shares = [float(weight) for weight in weights]
    return ModelState(
        params=_mix_tensors([state.params for state in states], shares),
        buffers=_mix_tensors([state.buffers for state in states], shares),
    )


def is_finite(state: ModelState) -> bool:
    """Tell whether every number of the state is finite."""
    tensors = (*state.params.values(), *state.buffers.values())
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def digest(state: ModelState) -> str:
    """Return the SHA-256 of names, types, shapes and values."""
    total = hashlib.sha256()
    for part in (state.params, state.buffers):
        for name in sorted(part):
            tensor = part[name].contiguous()
            total.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
            total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _check_alike(states: Sequence[ModelState]) -> None:
    """Refuse what torch would broadcast or cast without a word."""
    first, *others = [_form(state) for state in states]
    for place, form in enumerate(others, start=1):
        if form != first:
            name = min(entry[1] for entry in form ^ first)
            raise ValueError(f"state {place} of {len(states)} differs from the first in {name!r}")


def _form(state: ModelState) -> set[tuple[str, str, torch.dtype, torch.Size]]:
    parts = (("params", state.params), ("buffers", state.buffers))
    return {(part, k, v.dtype, v.shape) for part, entries in parts for k, v in entries.items()}


def _mix_tensors(parts: Sequence[Mapping[str, Tensor]], shares: list[float]) -> dict[str, Tensor]:
    return {name: _mix_tensor([part[name] for part in parts], shares) for name in parts[0]}


def _mix_tensor(tensors: list[Tensor], shares: list[float]) -> Tensor:
    first = tensors[0]
    if not first.is_floating_point():
        return torch.stack(tensors).amax(dim=0)
    # Begun with the first term and not with zero, which would swallow the sign of −0.0.
    total = first.double() * shares[0]
    for tensor, share in zip(tensors[1:], shares[1:], strict=True):
        total.add_(tensor.double(), alpha=share)
    return total.to(first.dtype)
