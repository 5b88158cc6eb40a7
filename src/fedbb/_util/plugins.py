"""What installed packages register through Python entry points (`fedbb.models`, …)."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from fedbb.errors import RecipeError

Group = Literal["fedbb.models", "fedbb.losses", "fedbb.datasets", "fedbb.partitions"]


def plugin_names(group: Group) -> list[str]:
    """Return the names that installed packages register in a group, sorted; nothing is loaded."""
    return sorted({point.name for point in entry_points(group=group)})


def load_plugin(group: Group, name: str) -> Any:
    """Return what an installed package registers under a name, or None if none does.

    Raises:
        RecipeError: two packages register the name, or the package cannot be imported.
    """
    found = {point.value: point for point in entry_points(group=group, name=name)}
    if not found:
        return None
    if len(found) > 1:
        raise RecipeError(
            f"{name!r} is registered more than once in {group}: {', '.join(sorted(found))}; "
            "uninstall one of the packages"
        )
    (point,) = found.values()
    return _load(point)


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else "an installed package"
        raise RecipeError(
            f"{point.name!r} of {point.group} cannot be loaded from {package} ({point.value}): "
            f"{type(error).__name__}: {error}"
        ) from error
