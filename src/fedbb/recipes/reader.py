"""Reading recipes: TOML or JSON, values set on the command line, and errors in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedbb._util.files import explain_error, parse_json, parse_toml
from fedbb._util.validation import explain_validation_error
from fedbb.errors import RecipeError
from fedbb.recipes.spec import EVERY_KEY, PythonRecipe, Recipe


def read_recipe(path: Path | str, settings: Sequence[str] = ()) -> Recipe:
    """Return the recipe in a file.

    Args:
        path: The file, .toml or .json.
        settings: Changes of single settings, such as "local.lr=0.02".

    Returns:
        The recipe; whether its parts go together is checked when it runs.

    Raises:
        RecipeError: The file cannot be read, or a setting is unknown or out of range.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"recipe {path} cannot be read: {explain_error(error)}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"recipe {path} is not UTF-8 text: {error}") from error
    try:
        values = parse_json(text) if path.suffix == ".json" else parse_toml(text)
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise RecipeError(f"recipe {path} is not valid {kind}: {error}") from error
    if isinstance(values, dict):
        _refuse_grid(values, path)
        values = read_values(settings, values)
    return make_recipe(values, where=f"recipe {path}")


def _refuse_grid(values: Mapping[str, Any], path: Path) -> None:
    """Refuse the file of a grid in one message; otherwise each of its keys would be unknown."""
    if "data" not in values and {"axis", "recipe"} & values.keys():
        raise RecipeError(
            f"{path} is a grid, not a recipe: `fedbb sweep {path}` runs its cells; a recipe has "
            "the sections data and method"
        )


def read_values(settings: Sequence[str], values: dict[str, Any] | None = None) -> dict[str, Any]:
    """Put settings such as "local.lr=0.02" into a table of values, by default an empty one."""
    values = {} if values is None else values
    for setting in settings:
        _apply(values, setting)
    return values


def make_recipe(values: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """Return the recipe of these values, or say what is wrong with each of them."""
    if not isinstance(values, Mapping):
        raise RecipeError(f"{where} must be a table of settings")
    kind = PythonRecipe if "python" in values else Recipe
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = explain_validation_error(error, kind)
        raise RecipeError(f"{where}: {problems}") from error


def refuse_python(recipe: Recipe) -> None:
    """Refuse a recipe whose data, network or method exist in a Python program only.

    Raises:
        RecipeError: It is the record of such a run.
    """
    if isinstance(recipe, PythonRecipe):
        raise RecipeError(
            "the run was made from Python, and its data and network are known there only; to go on "
            "with it call fedbb.simulate(..., out=folder, resume=True) with the same arguments"
        )


def differences(before: Recipe, after: Recipe) -> list[str]:
    """Return a line for each setting that differs between two recipes.

    The digest of a teacher's file is filled in when a run starts, so it differs only from another.
    """
    if None in (before.method.teacher_sha256, after.method.teacher_sha256):
        before, after = (_without_digest(one) for one in (before, after))
    old, new = (dict(flatten(one.model_dump(context=EVERY_KEY))) for one in (before, after))
    return [
        f"{key}: {old.get(key)!r} before, {new.get(key)!r} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _without_digest(recipe: Recipe) -> Recipe:
    method = recipe.method.model_copy(update={"teacher_sha256": None})
    return recipe.model_copy(update={"method": method})


def _apply(values: dict[str, Any], setting: str) -> None:
    """Set one "key.inner=value"; the value is read as TOML, or taken as text."""
    key, equals, text = setting.partition("=")
    *tables, last = key.strip().split(".")
    if not equals or not last:
        raise RecipeError(f"--set {setting!r} must have the form key=value, as in local.lr=0.02")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise RecipeError(f"--set {setting!r}: {table} is a value, not a table")
    try:
        values[last] = parse_toml(f"value = {text}")["value"]
    except ValueError:
        values[last] = text.strip()


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting of nested tables with its dotted name."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
