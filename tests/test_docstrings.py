"""Docstrings of public names and of the sections of a recipe say all that their signatures do."""

import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import fedbb
from fedbb.data.registry import CATALOGUE
from fedbb.recipes.grid import GridSpec, OverlaySpec
from fedbb.recipes.spec import Recipe


def public_names() -> dict[str, Any]:
    """Return all that fedbb and its public packages export, by name."""
    found = {name: getattr(fedbb, name) for name in fedbb.__all__}
    for package in fedbb._PACKAGES:
        module = getattr(fedbb, package)
        found |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return {name: value for name, value in found.items() if is_documented(value)}


def is_documented(value: Any) -> bool:
    """Return whether a value is a function or a class with arguments of its own."""
    if inspect.isclass(value):
        plain = issubclass(value, Exception | enum.Enum) or getattr(value, "_is_protocol", False)
        return not plain
    return inspect.isfunction(value)


def sections(record: type) -> Iterator[type]:
    """Yield a section of a recipe and the sections in it."""
    yield record
    if is_dataclass(record):
        kinds = list(get_type_hints(record).values())
    else:
        kinds = [field.annotation for field in record.model_fields.values()]
    for kind in kinds:
        for part in (kind, *get_args(kind)):
            if inspect.isclass(part) and (is_dataclass(part) or issubclass(part, BaseModel)):
                yield from sections(part)


PUBLIC = public_names()
RECORDS = {
    record.__name__: record for root in (Recipe, GridSpec, OverlaySpec) for record in sections(root)
} | {
    name: value
    for entry in CATALOGUE.values()
    for name, value in vars(inspect.getmodule(entry.load)).items()
    if name.endswith("Options")
}
"""The sections of recipes and grids, and the options of data sets."""


def section(value: Any, *titles: str) -> str:
    """Return the lines under the first of these titles in a docstring; empty if it has none."""
    text = f"{inspect.getdoc(value)}\n"
    for title in titles:
        if found := re.search(rf"^{title}:\n((?: {{4}}.*\n|\n)*)", text, re.M):
            return found[1]
    return ""


def unnamed(value: Any, names: list[str]) -> list[str]:
    """Return the arguments that a docstring does not explain.

    A class has the keys of its bases, which explain them; a function may refer to another one.
    """
    explained = list(value.__mro__[:-1]) if inspect.isclass(value) else [value]
    if other := re.search(r"The arguments are those of `(\w+)`", inspect.getdoc(value)):
        explained.append(PUBLIC[other[1]])
    text = "".join(section(each, "Args", "Attributes") for each in explained)
    return [name for name in names if not re.search(rf"^ {{4}}\**{name}(, \w+)*:", text, re.M)]


def raised_in(code: Callable[..., Any]) -> set[str]:
    """Return the classes of the errors that a function raises itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    errors = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    names = {ast.unparse(error.func) for error in errors if isinstance(error, ast.Call)}
    return {name for name in names if name.isidentifier()} - {"NotImplementedError"}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_docstring_explains_every_argument(name):
    parameters = inspect.signature(PUBLIC[name]).parameters.values()
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [each.name for each in parameters if each.kind not in various]
    assert unnamed(PUBLIC[name], [given for given in names if not given.startswith("_")]) == []


@pytest.mark.parametrize("name", RECORDS)
def test_the_docstring_explains_every_key_of_a_section(name):
    record = RECORDS[name]
    keys = [field.name for field in fields(record)] if is_dataclass(record) else record.model_fields
    assert unnamed(record, list(keys)) == []


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isfunction(PUBLIC[name])])
def test_the_docstring_says_what_is_returned(name):
    function = PUBLIC[name]
    # A builder of a method or of a head describes what it builds.
    if inspect.signature(function).return_annotation in (None, "None", "Method", "Head"):
        return
    summary = inspect.getdoc(function).splitlines()[0]
    assert section(function, "Returns", "Yields") or re.match("Returns?|Yields?", summary)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_docstring_names_the_errors(name):
    value = PUBLIC[name]
    code = value
    if inspect.isclass(value):
        code = vars(value).get("__post_init__" if is_dataclass(value) else "__init__")
    found = raised_in(code) if inspect.isfunction(code) else set()
    text = section(value, "Raises")
    assert {error for error in found if f"{error}:" not in text} == set()
