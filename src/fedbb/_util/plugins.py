"""Code of other packages: registered through Python entry points, or named by a recipe."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from fedbb.errors import RecipeError

Group = Literal["fedbb.models", "fedbb.losses", "fedbb.datasets", "fedbb.partitions"]

AllowedCode = bool | Collection[str]
"""Whether a name may run code that it imports: never, always, or if it is one of these."""


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


def plugin_version(group: Group, name: str) -> str:
    """Return the package and version that registers a name, or an empty text if none does."""
    found = [point.dist for point in entry_points(group=group, name=name)]
    return ", ".join(f"{dist.name} {dist.version}" for dist in found if dist is not None)


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else "an installed package"
        raise RecipeError(
            f"{point.name!r} of {point.group} cannot be loaded from {package} ({point.value}): "
            f"{type(error).__name__}: {error}"
        ) from error


def is_code(name: str) -> bool:
    """Return whether a name has the form "package.module:function", which imports that module."""
    return ":" in name


def check_code(key: str, name: str, allowed: AllowedCode) -> None:
    """Check that the code which a name imports may run.

    Args:
        key: the key of the recipe that holds the name.
        name: any name; one that is not code passes.
        allowed: what the user allows.

    Raises:
        RecipeError: it may not; the message says how to allow it.
    """
    # A plain text would allow each of its parts, so it is taken as one name.
    names = (allowed,) if isinstance(allowed, str) else allowed
    if not is_code(name) or names is True or (names and name in names):
        return
    raise RecipeError(
        f"{key} {name!r} imports and runs code of that module; if you trust it, allow it: "
        "--allow-code on the command line, allow_code=True in Python, and on Flower "
        f'allowed-code="{name}" in the own configuration of each site and FEDBB_ALLOWED_CODE '
        "at the server"
    )


def import_code(key: str, name: str) -> Any:
    """Return what "package.module:function" names; the caller has called `check_code`.

    Raises:
        RecipeError: it cannot be imported.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise RecipeError(
            f"{key} {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return found
