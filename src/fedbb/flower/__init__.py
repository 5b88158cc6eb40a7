"""Recipes across real sites on Flower, and parts for existing Flower apps (`fedbb[flower]`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedbb.flower.mods import report_label_statistics
    from fedbb.flower.strategy import ClientBalancedStrategy

__all__ = ["ClientBalancedStrategy", "report_label_statistics"]

_MODULES = {"ClientBalancedStrategy": "strategy", "report_label_statistics": "mods"}


def __getattr__(name: str) -> object:
    """Import a public name on first use: the package must load without Flower."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
