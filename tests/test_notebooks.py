"""The notebooks run from their first cell to their last, and hold the outputs that they print."""

import ast
import contextlib
import io
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NEEDS = {"imbalance": "pandas"}


def run_cell(source: str, names: dict) -> str:
    """Run a cell as Jupyter does and return what it shows, last the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    return shown.getvalue() + ("" if value is None else f"{value!r}\n")


def words(text: str) -> list[str]:
    """Return the words of an output but its numbers, which processors may round differently."""
    return [word for word in text.split() if not any(sign.isdigit() for sign in word)]


CASES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem == "federation" else [])
    for path in NOTEBOOKS
]


@pytest.mark.parametrize("path", CASES)
def test_a_notebook_runs_and_shows_what_it_holds(path, tmp_path, monkeypatch):
    pytest.importorskip(NEEDS.get(path.stem, "torch"))
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            shown = run_cell("".join(cell["source"]), names)
            kept = "".join(
                "".join(output.get("text", output.get("data", {}).get("text/plain", [])))
                for output in cell["outputs"]
            )
            assert words(shown) == words(kept)


def test_there_are_three_and_none_holds_an_error_or_a_path_of_a_machine():
    assert [path.stem for path in NOTEBOOKS] == ["federation", "imbalance", "loss"]
    for path in NOTEBOOKS:
        text = path.read_text("utf-8")
        assert '"output_type": "error"' not in text
        assert "/tmp/" not in text
