"""The first slot of a method: how an error is scored on a client."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedbb._util.names import nearest
from fedbb._util.plugins import (
    AllowedCode,
    check_code,
    import_code,
    is_code,
    load_plugin,
    plugin_names,
)
from fedbb.errors import RecipeError
from fedbb.records import FloatArray, LabelCounts, Task, Tensors


class Loss(Protocol):
    """A frozen spec of hyper-parameters that makes a loss module for one client.

    A spec that inherits from this class must have `bind`; the other methods have defaults, which
    are those of a plain loss.
    """

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the module `(logits, targets) -> Tensor` for a client with these counts."""
        ...

    def receive(self, broadcast: Tensors) -> Loss:
        """Return the loss of a round, given what the server sent beside the model.

        A spec that does not inherit from this class need not have it.
        """
        return self

    def supports(self, task: Task) -> bool:
        """Return whether the loss is defined for this task."""
        return True

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the mean factor on this client's entries compared with the plain loss.

        It acts as a factor on the client's learning rate; at zero the client learns nothing.
        """
        return 1.0

    def mean_weights(self, positive: FloatArray, negative: FloatArray, task: Task) -> FloatArray:
        """Return `mean_weight` of many clients, whose cases are tables (K, C)."""
        counts = (LabelCounts(*cases, samples=0) for cases in zip(positive, negative, strict=True))
        return np.array([self.mean_weight(count, task) for count in counts])

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Return what the owner of these counts should know about this loss on them."""
        return []


class Bindable(Protocol):
    """A spec that has no more than it must: the other methods of `Loss` are a plain loss's."""

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the module `(logits, targets) -> Tensor` for a client with these counts."""
        ...


LossLike = Loss | Bindable | nn.Module | Callable[[LabelCounts], nn.Module]
"""What a method takes for a loss."""

LOSS_KEY = "method.loss"
_METHODS = ("supports", "mean_weight", "mean_weights", "diagnostics")


def as_loss(loss: LossLike) -> Loss:
    """Return a loss with all methods of `Loss`.

    Args:
        loss: A spec, which is returned as it is if it has them all; a module; or a function that
            makes a module of a client's label counts.

    Raises:
        RecipeError: It is none of these, or a class in place of an instance.
    """
    if isinstance(loss, type) and (issubclass(loss, nn.Module) or hasattr(loss, "bind")):
        raise RecipeError(
            f"the loss is the class {loss.__name__}; give an instance, as in {loss.__name__}(), or "
            "a function of label counts that returns one"
        )
    if hasattr(loss, "bind") and all(hasattr(loss, name) for name in _METHODS):
        return loss  # type: ignore[return-value]  # it has every method of a Loss
    if hasattr(loss, "bind") or callable(loss):
        return OwnLoss(loss)
    raise RecipeError(
        f"the loss is {loss!r}; allowed: an nn.Module, a function of label counts that returns "
        "one, and a spec with the method bind(counts, task)"
    )


def check_loss(loss: Loss, classes: int, task: Task) -> None:
    """Check that a loss of the user's own takes logits and targets, by two made-up examples.

    Args:
        loss: any loss; those of this package pass without a trial.
        classes: number of classes.
        task: the task, which says what targets are.

    Raises:
        RecipeError: it cannot be made or computed, or is not one number.
    """
    if not isinstance(loss, OwnLoss):
        return
    cases = np.ones(classes)
    module = loss.bind(LabelCounts(cases, cases, samples=2), task)
    multiclass = task is Task.MULTICLASS
    targets = torch.zeros(2, dtype=torch.int64) if multiclass else torch.zeros(2, classes)
    name = type(module).__name__
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's on shapes; the error below says more
            value = module(torch.zeros(2, classes, requires_grad=True), targets)
    except Exception as error:
        wanted = "class numbers (N,)" if multiclass else "labels (N, C) of 0 and 1"
        raise RecipeError(
            f"the loss {name} cannot take logits (N, C) and {wanted}: {type(error).__name__}: "
            f"{str(error).partition(chr(10))[0]}"
        ) from error
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise RecipeError(
            f"the loss {name} returns {shape}; it must return one number that depends on the logits"
        )


def named_loss(name: str, allow_code: AllowedCode = False) -> Loss:
    """Return the loss that a recipe names.

    Args:
        name: a loss that an installed package registers as `fedbb.losses`, or
            "package.module:function".
        allow_code: whether the latter may be imported.

    Returns:
        The loss. Of code that is not allowed, a loss that refuses to be bound, so that recipes can
        be checked without it.

    Raises:
        RecipeError: the name is unknown, cannot be loaded, or names something else than a loss.
    """
    if is_code(name):
        try:
            check_code(LOSS_KEY, name, allow_code)
        except RecipeError:
            return RefusedLoss(name)
        return as_loss(import_code(LOSS_KEY, name))
    known = plugin_names("fedbb.losses")
    if name not in known:
        if not known:
            raise RecipeError(
                f"{LOSS_KEY} {name!r} is unknown: no installed package registers a loss; "
                "package.module:function is allowed too"
            )
        raise RecipeError(
            f"{LOSS_KEY} {name!r} is unknown{nearest(name, known)}, or package.module:function"
        )
    return as_loss(load_plugin("fedbb.losses", name))


@dataclass(frozen=True)
class RefusedLoss(Loss):
    """A loss in code that may not run: what can be checked without it is.

    Attributes:
        name: its "package.module:function".
    """

    name: str

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Raise the RecipeError that says how to allow the code."""
        check_code(LOSS_KEY, self.name, allowed=False)
        raise AssertionError("the name is that of code")


@dataclass(frozen=True)
class OwnLoss(Loss):
    """A loss that is less than a spec; what it lacks is as for a plain loss.

    Attributes:
        source: A module, a function of label counts that returns one, or a spec that lacks some of
            the methods of `Loss`.
    """

    source: Any

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the module for a client with these counts, which no other client shares."""
        if isinstance(self.source, nn.Module):
            return deepcopy(self.source)
        try:
            made = self.source.bind(counts, task) if self._has("bind") else self.source(counts)
        except Exception as error:
            raise RecipeError(
                f"the loss {self.source!r} cannot be made from the label counts of a client: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(made, nn.Module):
            raise RecipeError(
                f"the loss {self.source!r} returns {made!r}, which is not an nn.Module"
            )
        return made

    def supports(self, task: Task) -> bool:
        """Return what the source says, or True."""
        return bool(self.source.supports(task)) if self._has("supports") else True

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return what the source says, or 1."""
        return float(self.source.mean_weight(counts, task)) if self._has("mean_weight") else 1.0

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Return what the source says, or nothing."""
        return list(self.source.diagnostics(counts, task)) if self._has("diagnostics") else []

    def _has(self, method: str) -> bool:
        return not isinstance(self.source, nn.Module) and hasattr(self.source, method)
