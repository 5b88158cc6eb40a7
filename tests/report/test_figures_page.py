"""The page on figures: its example runs as it is printed, and its pictures are there."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "figures.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.mark.slow
def test_the_example_gives_the_files_that_the_page_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (_, name, content), (_, _, script) = BLOCKS
    smaller = {"seeds = [0, 1, 2]": "seeds = [3]", "number = 10": "number = 1"}
    smaller |= {"epochs = 2": "epochs = 1"}
    (second,) = re.findall(r"^.*label = \"δ = 1\".*\n", content, re.M)
    for old, new in (smaller | {second: ""}).items():
        assert old in content
        content = content.replace(old, new)
    Path(name).write_text(content, "utf-8")
    names: dict = {}
    exec(script, names)
    told = re.findall(r"^\| `([\w.]+)` \|", PAGE, re.M)
    folder = Path("sweeps", "digits-grid")
    written = {path.name for path in folder.iterdir() if path.is_file()}
    assert written == set(told)
    kinds = re.findall(r"^\*\*`(\w+)`\*\*", PAGE, re.M)
    drawn = {path.stem.rpartition("-")[2] for path in names["figures"]}
    assert drawn == set(kinds)
    assert len(names["figures"]) == 2 * len(kinds)
    check_table(folder / "table.json", folder / "runs")


def check_table(path: Path, runs: Path) -> None:
    """Compare every score of a table with the last line of its run."""
    table = json.loads(path.read_text("utf-8"))
    assert len(table["entries"]) == 3
    for entry in table["entries"]:
        (run,) = entry["runs"]
        last = (runs / run["folder"] / "rounds.jsonl").read_text("utf-8").splitlines()[-1]
        macro = json.loads(last)["scores"]["test"]["macro"]
        mean = entry["scores"][0]["final"]["spread"]["mean"]
        assert mean == pytest.approx(100 * macro["balanced_accuracy"])
        clients = json.loads((runs / run["folder"] / "federation.json").read_text("utf-8"))
        assert entry["images"]["mean"] == clients["train"]


def test_every_picture_of_a_page_is_there_and_no_other():
    readme = (ROOT / "README.md").read_text("utf-8").replace("(docs/", "(")
    pages = readme + "".join(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))
    shown = set(re.findall(r"!\[[^\]]+\]\((figures/[\w-]+\.png)\)", pages))
    assert shown == {f"figures/{path.name}" for path in (ROOT / "docs" / "figures").iterdir()}
    for picture in shown:
        with Image.open(ROOT / "docs" / picture) as image:
            image.verify()
