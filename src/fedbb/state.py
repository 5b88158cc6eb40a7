"""Model states: taken from a network, put back, mixed, and fingerprinted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedbb.records import ClientState, ModelState

Arrays = Mapping[str, npt.NDArray[Any]]

PARAMS, BUFFERS = "params.", "buffers."
"""Prefixes of a state's entries wherever both kinds are stored or sent together."""

MODEL, MOMENTUM = "model.", "momentum."
"""Prefixes of the two parts of a client's state."""

Entry = tuple[str, str]
Form = tuple[torch.dtype, torch.Size]


def snapshot(model: nn.Module) -> ModelState:
    """Return a copy of the model's parameters and persistent buffers, on the CPU."""
    # A shared parameter is trained under each of its names.
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    # state_dict holds references: without the clone, later training would change the snapshot.
    copies = {name: at_rest(tensor) for name, tensor in model.state_dict().items()}
    return ModelState(
        params={k: v for k, v in copies.items() if k in trained},
        buffers={k: v for k, v in copies.items() if k not in trained},
    )


def at_rest(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, in the one memory format that files and messages keep."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def restore(model: nn.Module, state: ModelState) -> None:
    """Put a state into the model, in place."""
    model.load_state_dict({**state.params, **state.buffers})


def flatten_state(state: ModelState, prefix: str = "") -> dict[str, Tensor]:
    """Return a state's tensors by name, parameters under "params.", buffers under "buffers."."""
    parts = ((PARAMS, state.params), (BUFFERS, state.buffers))
    return {prefix + kind + name: tensor for kind, part in parts for name, tensor in part.items()}


def unflatten_state(tensors: Mapping[str, Tensor], prefix: str = "") -> ModelState:
    """Return the state that `flatten_state` flattened with this prefix; other names are ignored."""
    return ModelState(_part(tensors, prefix + PARAMS), _part(tensors, prefix + BUFFERS))


def state_to_arrays(state: ModelState) -> dict[str, npt.NDArray[Any]]:
    """Return the entries of `flatten_state` as numpy arrays that share the tensors' memory."""
    return {name: tensor.numpy() for name, tensor in flatten_state(state).items()}


def state_from_arrays(arrays: Arrays) -> ModelState:
    """Return the state of arrays that `state_to_arrays` named; it shares their memory."""
    return unflatten_state({name: torch.from_numpy(array) for name, array in arrays.items()})


def flatten_client_state(state: ClientState) -> dict[str, Tensor]:
    """Return the tensors of a client's state by name: "model.params.…", "momentum.…"."""
    model = {} if state.model is None else flatten_state(state.model, MODEL)
    return model | {MOMENTUM + name: tensor for name, tensor in (state.momentum or {}).items()}


def unflatten_client_state(tensors: Mapping[str, Tensor]) -> ClientState:
    """Return the client's state that `flatten_client_state` flattened."""
    model = unflatten_state(tensors, MODEL)
    return ClientState(model if model.params else None, _part(tensors, MOMENTUM) or None)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


class Mixture:
    """Σ w·θ over states that come one by one, so that no two of them have to be held.

    Added up in float64 in the order of coming; integer entries take the largest value. Summed so,
    a mean of equal models in float32 or less is that model to the bit.
    """

    def __init__(self) -> None:
        self.number = 0
        self._form: dict[Entry, Form] = {}
        self._totals: dict[Entry, Tensor] = {}

    def add(self, state: ModelState, weight: float) -> None:
        """Take in w·θ."""
        entries = _entries(state)
        self._check_alike(entries)
        for entry, tensor in entries.items():
            if not tensor.is_floating_point():
                before = self._totals.get(entry, tensor)
                self._totals[entry] = torch.maximum(before, tensor)
            elif self.number == 0:
                # Begun with the first term, for zero would swallow the sign of −0.0.
                self._totals[entry] = tensor.double() * weight
            else:
                self._totals[entry].add_(tensor.double(), alpha=weight)
        self.number += 1

    def total(self) -> ModelState:
        """Return the sum so far, in the types of the states."""
        if self.number == 0:
            raise ValueError("there are no states to mix")
        parts: dict[str, dict[str, Tensor]] = {"params": {}, "buffers": {}}
        for (part, name), total in self._totals.items():
            parts[part][name] = total.to(self._form[part, name][0])
        return ModelState(**parts)

    def _check_alike(self, entries: Mapping[Entry, Tensor]) -> None:
        """Refuse what torch would broadcast or cast without a word."""
        form = {entry: (tensor.dtype, tensor.shape) for entry, tensor in entries.items()}
        if self.number == 0:
            self._form = form
        elif form != self._form:
            _, name = min(entry for entry, _ in form.items() ^ self._form.items())
            raise ValueError(f"state {self.number + 1} differs from the first in {name!r}")


def mix(states: Iterable[ModelState], weights: Iterable[float]) -> ModelState:
    """Return Σ w·θ in the given order."""
    mixture = Mixture()
    for state, weight in zip(states, weights, strict=True):
        mixture.add(state, float(weight))
    return mixture.total()


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


def _entries(state: ModelState) -> dict[Entry, Tensor]:
    parts = (("params", state.params), ("buffers", state.buffers))
    return {(part, name): tensor for part, tensors in parts for name, tensor in tensors.items()}
