"""The public names: listed, documented, and documented in docs/api.md as they are."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedbb

API = Path(__file__).parents[1] / "docs" / "api.md"
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", API.read_text("utf-8"), re.M | re.S))
HEAVY = {"sklearn", "scipy", "PIL", "matplotlib", "pydantic", "typer", "rich", "safetensors"}


def parameters_in_docs(name: str) -> list[str]:
    """Return the parameter names of a section's signature, which is its first indented block."""
    signature = re.search(rf"^    ({name}\(.*?\))\n\n", SECTIONS[name], re.M | re.S).group(1)
    bare = re.sub(r"\*args", "args", signature)
    arguments = ast.parse(f"def {bare}: ...").body[0].args
    return [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]


def parameters_in_code(name: str) -> list[str]:
    public = getattr(fedbb, name)
    if public is fedbb.Task:  # an enumeration is called with one of its values
        return ["value"]
    if inspect.isclass(public) and issubclass(public, Exception):
        return ["args"]
    return [name for name in inspect.signature(public).parameters if not name.startswith("_")]


def test_public_names_are_sorted_and_listed_once():
    assert fedbb.__all__ == sorted(set(fedbb.__all__))


def test_all_that_shows_is_public():
    shown = {name for name in dir(fedbb) if not name.startswith("_")}
    assert shown == {*fedbb.__all__, *fedbb._PACKAGES}


def test_type_checkers_see_the_names_of_the_tables():
    tree = ast.parse(Path(fedbb.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {(alias.name, statement.module) for statement in block.body for alias in statement.names}
    assert seen == {*fedbb._HOMES.items(), *((name, "fedbb") for name in fedbb._PACKAGES)}


@pytest.mark.parametrize("package", fedbb._PACKAGES)
def test_a_public_package_has_what_it_lists(package):
    module = getattr(fedbb, package)
    assert module.__name__ == f"fedbb.{package}"
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", fedbb._PACKAGES)
def test_the_documentation_lists_what_a_package_exports(package):
    section = API.read_text("utf-8").partition(f"### Package fedbb.{package}\n")[2]
    listed = re.findall(r"^\| `(\w+)` \| \S", section.partition("\n#")[0], re.M)
    assert listed == getattr(fedbb, package).__all__


@pytest.mark.parametrize("name", fedbb.__all__)
def test_a_public_name_has_a_docstring_of_its_own(name):
    public = getattr(fedbb, name)
    assert public.__doc__
    assert public.__doc__.splitlines()[0].endswith((".", ")"))
    assert public.__module__.startswith("fedbb.")


def test_the_documentation_names_exactly_the_public_names():
    headings = re.findall(r"^### `(\w+)`$", API.read_text("utf-8"), re.M)
    assert sorted(headings) == fedbb.__all__


@pytest.mark.parametrize("name", fedbb.__all__)
def test_the_documented_signature_is_the_real_one(name):
    assert parameters_in_docs(name) == parameters_in_code(name)


@pytest.mark.parametrize("name", fedbb.__all__)
def test_every_section_of_the_documentation_has_an_example(name):
    assert f"fedbb.{name}" in "".join(re.findall(r"^    >>> .*$", SECTIONS[name], re.M))


def test_the_examples_of_the_documentation_give_what_they_show():
    found = doctest.testfile(str(API), module_relative=False, encoding="utf-8")
    assert found.attempted > len(fedbb.__all__)
    assert found.failed == 0


def loaded_by(statement):
    """Return the packages that are loaded after a statement, in a process of its own."""
    script = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_losses_and_imbalance_load_nothing_heavier_than_torch_and_numpy():
    homes = ("fedbb.losses", "fedbb.imbalance", "fedbb.records", "fedbb.errors")
    light = [name for name, home in fedbb._HOMES.items() if home.startswith(homes)]
    assert "PNBLoss" in light
    loaded = loaded_by(f"from fedbb import {', '.join(light)}")
    assert {"torch", "numpy", "fedbb"} <= loaded
    assert not loaded & HEAVY


def test_importing_fedbb_or_its_command_line_alone_takes_no_seconds_for_torch():
    assert not loaded_by("import fedbb") & {"torch", "numpy"}
    assert not loaded_by("import fedbb.cli.main") & {"torch", "numpy"}


def test_a_run_starts_without_what_it_needs_only_for_its_final_scores():
    assert not loaded_by("import fedbb.recipes.reader, fedbb.runs.runner") & {"scipy", "sklearn"}


def test_every_public_name_has_a_home_and_others_are_refused():
    assert set(fedbb._HOMES) == set(fedbb.__all__) <= set(dir(fedbb))
    for name in fedbb.__all__:
        assert getattr(fedbb, name).__module__ == fedbb._HOMES[name]
    with pytest.raises(AttributeError, match="module 'fedbb' has no attribute 'PNBLos'"):
        fedbb.PNBLos  # noqa: B018


@pytest.mark.parametrize("name", [name for name in fedbb.__all__ if name.endswith("Error")])
def test_every_error_is_a_fedbb_error_and_keeps_its_message(name):
    error = getattr(fedbb, name)("what was wrong")
    assert isinstance(error, fedbb.FedbbError)
    assert str(error) == "what was wrong"
