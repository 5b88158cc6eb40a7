"""The names of the methods, and methods built from a name and the flat options of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fedbb._util.names import nearest
from fedbb._util.plugins import AllowedCode
from fedbb.errors import RecipeError
from fedbb.losses.base import named_loss
from fedbb.methods.balancing import (
    cbr,
    class_balanced,
    fedavg_scaled,
    fedbb,
    fedbb_plus,
    fedbb_printed,
    fedlc,
    focal,
    pnb,
)
from fedbb.methods.bases import fedalign, fedavg, fednova, fedprox, moon
from fedbb.methods.record import Method, harmonize
from fedbb.methods.server import fedadagrad, fedadam, fedavgm, feddyn, fedyogi, scaffold

BASES: dict[str, Callable[..., Method]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "moon": moon,
    "fednova": fednova,
    "fedalign": fedalign,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "scaffold": scaffold,
    "feddyn": feddyn,
}

BALANCING: dict[str, Callable[..., Method]] = {
    "fedlc": fedlc,
    "focal": focal,
    "cb": class_balanced,
    "fedavg-scaled": fedavg_scaled,
    "fedbb": fedbb,
    "fedbb-printed": fedbb_printed,
    "fedbb-plus": fedbb_plus,
    "pnb": pnb,
    "cbr": cbr,
}

METHODS: dict[str, Callable[..., Method]] = {**BASES, **BALANCING}


def build_method(
    name: str,
    options: Mapping[str, Any],
    loss: str | None = None,
    *,
    allow_code: AllowedCode = False,
) -> Method:
    """Return the method of a name with these hyper-parameters.

    Args:
        name: one of `METHODS`, or "base+balancing" for two that are harmonized.
        options: its hyper-parameters by name; of two, a table of them by the name of each.
        loss: the loss that takes the place of the method's own: one that an installed package
            registers as `fedbb.losses`, or "package.module:function".
        allow_code: whether the latter may be imported; otherwise training by the method is refused.

    Raises:
        RecipeError: the name, an option or a value is not allowed.
    """
    method = _build_named(name, options)
    return method if loss is None else replace(method, loss=named_loss(loss, allow_code))


def _build_named(name: str, options: Mapping[str, Any]) -> Method:
    if "+" not in name:
        return _build(name, options, "method.options")
    base, _, balancing = name.partition("+")
    if base not in BASES or balancing not in BALANCING:
        raise RecipeError(
            f"method.name {name!r} is unknown; allowed before the + are {', '.join(BASES)}, "
            f"after it are {', '.join(BALANCING)}"
        )
    for key in options:
        if key not in (base, balancing):
            raise RecipeError(
                f"method.options.{key} is unknown to {name}{nearest(key, (base, balancing))}"
            )
    parts = [
        _build(part, _table(options.get(part, {}), part), f"method.options.{part}")
        for part in (base, balancing)
    ]
    return harmonize(*parts)


def hyper_parameters(name: str) -> dict[str, Any]:
    """Return the hyper-parameters of a method with their default values.

    >>> hyper_parameters("moon")
    {'mu': 1.0, 'temperature': 0.5}
    """
    return dict(METHODS[name].__kwdefaults__ or {})


def _build(name: str, options: Mapping[str, Any], where: str) -> Method:
    if name not in METHODS:
        raise RecipeError(f"method.name {name!r} is unknown{nearest(name, METHODS)}")
    known = hyper_parameters(name)
    if "alpha" in options and "tau" in known:
        # The paper calls τ α in places; everywhere else α is a weight (docs/paper-notes.md, 11).
        raise RecipeError(f"{where}.alpha is an older name in the paper; write tau")
    for option in options:
        if option not in known:
            raise RecipeError(f"{where}.{option} is unknown to {name}{nearest(option, known)}")
    try:
        return METHODS[name](**options)
    except ValueError as error:
        raise RecipeError(f"{where} of {name}: {error}") from error
    except TypeError as error:
        raise RecipeError(
            f"{where} of {name} has a value of the wrong type in {dict(options)}; "
            f"its defaults are {known}"
        ) from error


def _table(options: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise RecipeError(f"method.options.{name} must be a table of options, not {options!r}")
    return options
