"""What a run was made with."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy
import torch

import fedbb
from fedbb.errors import RunError

DECISIVE = ("fedbb", "torch", "numpy", "machine")


def describe() -> dict[str, Any]:
    """Return versions and machine, as far as they bear on results."""
    return {
        "fedbb": fedbb.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
    }


def check_same(before: dict[str, Any]) -> None:
    """Refuse to go on with other versions: the result would belong to neither."""
    now = describe()
    changed = [
        f"{name}: {before.get(name)} before, {now[name]} now"
        for name in DECISIVE
        if before.get(name) != now[name]
    ]
    if changed:
        raise RunError("the run was begun with other software; " + "; ".join(changed))
