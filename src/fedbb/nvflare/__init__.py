"""Parts for jobs of NVIDIA FLARE: CBR's client weights in its FedAvg (`fedbb[nvflare]`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedbb.nvflare.aggregator import ClientBalancedAggregator
    from fedbb.nvflare.client import report_label_statistics

__all__ = ["ClientBalancedAggregator", "report_label_statistics"]

_MODULES = {"ClientBalancedAggregator": "aggregator", "report_label_statistics": "client"}


def __getattr__(name: str) -> object:
    """Import a public name on first use: the package must load without NVFlare."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
