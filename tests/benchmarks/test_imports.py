"""Scripts outside the package follow it when its modules move: each can be imported."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    f"{folder}.{path.stem}"
    for folder in ("benchmarks", "studies")
    for path in sorted((ROOT / folder).glob("*.py"))
    if path.stem != "__init__"
]


@pytest.mark.parametrize("module", MODULES)
def test_a_script_finds_all_that_it_imports(module, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("fedbb", "benchmarks", "studies"):
            raise
        pytest.skip(f"{error.name} is not installed")
