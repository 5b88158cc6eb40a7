"""Names of installed packages and of code: found, allowed, loaded, or refused in words."""

import sys

import pytest

from fedbb._util.plugins import (
    check_code,
    import_code,
    load_plugin,
    plugin_names,
    plugin_version,
)
from fedbb.errors import RecipeError
from helpers.installed import install


def test_names_are_listed_without_an_import_and_loaded_on_demand(tmp_path, monkeypatch):
    points = "second = plugin_a:build\nfirst = plugin_a:build"
    install(tmp_path, monkeypatch, "plugin_a", "def build(): return 7", models=points)
    assert plugin_names("fedbb.models") == ["first", "second"]
    assert plugin_names("fedbb.losses") == []
    assert "plugin_a" not in sys.modules
    assert load_plugin("fedbb.models", "first")() == 7
    assert load_plugin("fedbb.models", "third") is None
    assert plugin_version("fedbb.models", "first") == "plugin_a 1.0"
    assert plugin_version("fedbb.models", "third") == ""


def test_a_name_of_two_packages_is_refused_with_both(tmp_path, monkeypatch):
    for name in ("plugin_b", "plugin_c"):
        install(tmp_path / name, monkeypatch, name, "build = 1", models=f"net = {name}:build")
    with pytest.raises(RecipeError, match=r"more than once.*plugin_b:build, plugin_c:build"):
        load_plugin("fedbb.models", "net")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("other = 1", "AttributeError"),
        ("raise ValueError('broken')", "ValueError: broken"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named(tmp_path, monkeypatch, code, reason):
    install(tmp_path, monkeypatch, "plugin_d", code, losses="mine = plugin_d:build")
    with pytest.raises(RecipeError) as caught:
        load_plugin("fedbb.losses", "mine")
    message = str(caught.value)
    assert "'mine' of fedbb.losses cannot be loaded from plugin_d (plugin_d:build)" in message
    assert reason in message


@pytest.mark.parametrize("allowed", [True, ["a.b:c", "x:y"], ("x:y",), "x:y"])
def test_code_passes_if_it_is_allowed(allowed):
    check_code("model.name", "x:y", allowed)


# A text is one name: its parts are not.
@pytest.mark.parametrize("allowed", [False, [], ["x:z", "x"], "xx:yy", "x:y:z"])
def test_code_that_is_not_allowed_is_refused_with_what_to_do(allowed):
    with pytest.raises(RecipeError, match=r"method\.loss 'x:y' .*--allow-code.*allowed-code=\"x:y"):
        check_code("method.loss", "x:y", allowed)
    check_code("method.loss", "a plain name", allowed)


def test_code_is_imported_also_from_inside_a_class(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "plugin_e", "class Nets:\n    small = 'found'")
    assert import_code("model.name", "plugin_e:Nets.small") == "found"
    with pytest.raises(RecipeError, match=r"model\.name 'plugin_e:Nets.big' cannot be imported"):
        import_code("model.name", "plugin_e:Nets.big")
