"""The names of the methods, and methods built from a name and the flat options of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from fedbb.methods.ccvr import ccvr
from fedbb.methods.climb import climb
from fedbb.methods.clip2fl import clip2fl
from fedbb.methods.compression import fedopt_sca
from fedbb.methods.creff import creff
from fedbb.methods.distillation import feddf, fedmd
from fedbb.methods.feddyn import feddyn
from fedbb.methods.fedfusion import fedfusion
from fedbb.methods.heads import HEADS
from fedbb.methods.imbalance import bsm, fed_rod, feddecorr, fedir, fedrs, fedvc
from fedbb.methods.isfl import isfl
from fedbb.methods.noisy_labels import evidential, symmetric
from fedbb.methods.personal import ditto, fedbn, fedper, fedrep, local
from fedbb.methods.pfedla import pfedla
from fedbb.methods.record import Method, harmonize
from fedbb.methods.rhfl import rhfl
from fedbb.methods.ripfl import ripfl
from fedbb.methods.scaffold import scaffold
from fedbb.methods.server import fedadagrad, fedadam, fedavgm, fedyogi

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
    "fedvc": fedvc,
    "feddecorr": feddecorr,
    "fed-rod": fed_rod,
    "climb": climb,
    "creff": creff,
    "ccvr": ccvr,
    "clip2fl": clip2fl,
    "local": local,
    "fedper": fedper,
    "fedrep": fedrep,
    "fedbn": fedbn,
    "ditto": ditto,
    "isfl": isfl,
    "pfedla": pfedla,
    "ripfl": ripfl,
    "fedopt-sca": fedopt_sca,
    "feddf": feddf,
    "fedmd": fedmd,
    "rhfl": rhfl,
    "fedfusion": fedfusion,
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
    "bsm": bsm,
    "fedrs": fedrs,
    "fedir": fedir,
    "symmetric": symmetric,
    "evidential": evidential,
}

METHODS: dict[str, Callable[..., Method]] = {**BASES, **BALANCING}

AMBIGUOUS = {
    "fedopt": "fedopt has two meanings: the server optimizers of Reddi et al. (2021), which are "
    "fedavgm, fedadam, fedyogi and fedadagrad here, and the compressed and private training of "
    "Asad et al. (2020), which is fedopt-sca",
}
"""Names that the literature gives to several methods, and what to write instead."""


def build_method(
    name: str,
    options: Mapping[str, Any],
    loss: str | None = None,
    *,
    allow_code: AllowedCode = False,
) -> Method:
    """Return the method of a name with these hyper-parameters.

    Args:
        name: one of `METHODS`, or "base+balancing" for two that are harmonized; either may end in
            "+" and one of `HEADS`, the classifiers in closed form.
        options: its hyper-parameters by name; of several, a table of them by the name of each.
        loss: the loss that takes the place of the method's own: one that an installed package
            registers as `fedbb.losses`, or "package.module:function".
        allow_code: whether the latter may be imported; otherwise training by the method is refused.

    Raises:
        RecipeError: the name, an option or a value is not allowed.
    """
    method = _build_named(name, options)
    return method if loss is None else replace(method, loss=named_loss(loss, allow_code))


def check_ambiguous(name: str) -> None:
    """Refuse a name, or a part of a combined one, that means several methods.

    Raises:
        RecipeError: says which.
    """
    for part in name.split("+"):
        if part in AMBIGUOUS:
            raise RecipeError(f"method.name {name!r}: {AMBIGUOUS[part]}")


def _build_named(name: str, options: Mapping[str, Any]) -> Method:
    parts = name.split("+")
    check_ambiguous(name)
    if len(parts) == 1:
        return _build(name, options, "method.options")
    head = parts.pop() if parts[-1] in HEADS else None
    is_known = parts[0] in METHODS if len(parts) == 1 else _is_pair(parts)
    if not is_known:
        raise RecipeError(
            f"method.name {name!r} is unknown; allowed before the + are {', '.join(BASES)}, "
            f"after it are {', '.join(BALANCING)}; a further + may add {', '.join(HEADS)}"
        )
    every = [*parts, head] if head else parts
    for key in options:
        if key not in every:
            raise RecipeError(f"method.options.{key} is unknown to {name}{nearest(key, every)}")
    tables = {part: _table(options.get(part, {}), part) for part in every}
    built = [_build(part, tables[part], f"method.options.{part}") for part in parts]
    method = harmonize(*built) if len(built) == 2 else built[0]
    if head is None:
        return method
    add = _call(HEADS, head, tables[head], f"method.options.{head}")
    return add(method)  # type: ignore[no-any-return]


def _is_pair(parts: Sequence[str]) -> bool:
    return len(parts) == 2 and parts[0] in BASES and parts[1] in BALANCING


def hyper_parameters(name: str) -> dict[str, Any]:
    """Return the hyper-parameters of a method, or of a head, with their default values.

    Args:
        name: the name of the method or the head, as in a recipe.

    >>> hyper_parameters("moon")
    {'mu': 1.0, 'temperature': 0.5}
    """
    return dict({**METHODS, **HEADS}[name].__kwdefaults__ or {})


def _build(name: str, options: Mapping[str, Any], where: str) -> Method:
    if name in HEADS:
        raise RecipeError(f"method.name {name!r} is added to a method, as in fedavg+{name}")
    if name not in METHODS:
        raise RecipeError(f"method.name {name!r} is unknown{nearest(name, METHODS)}")
    if "alpha" in options and "tau" in hyper_parameters(name):
        # The paper calls τ α in places; everywhere else α is a weight (docs/paper-notes.md, 11).
        raise RecipeError(f"{where}.alpha is an older name in the paper; write tau")
    return _call(METHODS, name, options, where)  # type: ignore[no-any-return]


def _call(
    builders: Mapping[str, Callable[..., Any]], name: str, options: Mapping[str, Any], where: str
) -> Any:
    """Return what a builder makes of options; RecipeError says what is wrong with them."""
    known = hyper_parameters(name)
    for option in options:
        if option not in known:
            raise RecipeError(f"{where}.{option} is unknown to {name}{nearest(option, known)}")
    try:
        return builders[name](**options)
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
