"""The page and its figure are made from results, wherever those came from."""

import sys
from pathlib import Path

import pytest

from benchmarks import page, results

ROOT = Path(__file__).parents[2]
SPREAD = {"median": 0.5, "least": 0.4, "most": 0.8}
VARIANT = {"ratio": SPREAD, "images_per_second": SPREAD, "outside_training": SPREAD}
MODEL = {"clients": 10, "images": 500, "variants": {"bare": VARIANT, "pool": VARIANT}}
PEER = {
    "ratio": {"first": 3.0, "later": 2.0, "peak": 4.0},
    "version": "1.0",
    "first": SPREAD,
    "later": SPREAD,
    "peak": 2**30,
    "processes": 3,
}


def make(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write results, and a page with this text that takes them."""
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    results.write("rounds", {"repeats": 6, "models": {"resnet56": MODEL}}, folder)
    older = {**PEER, "python": "3.11.7", "wanted_python": "3.14"}
    peers = {"fedbb": PEER, "Newer": older, "Other": {"failed": "no"}}
    results.write("peers", {"repeats": 5, "rounds": 5, "peers": peers}, folder)
    words = ["page", "--results", str(folder), "--page", str(path)]
    monkeypatch.setattr(sys, "argv", words)
    page.main()


def test_results_go_between_the_markers_of_the_page_and_into_its_figure(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    make(tmp_path, text, monkeypatch)
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| ResNet-56, 10 × 500 | pool | 0.50 (0.40–0.80) | 2.00 | 0 | 50.0 % |" in text
    assert "| fedbb 1.0 | **2.00** · 0.50 (0.40–0.80) s |" in text
    assert "Other gave no result." in text
    assert "; Newer: on Python 3.11.7, asks for 3.14. " in text
    assert "](page.svg)\n<!-- /figure -->" in text
    assert "<!-- growth -->\n*Not measured yet.*\n<!-- /growth -->" in text
    assert (tmp_path / "page.svg").read_text(encoding="utf-8").count("ResNet-56") >= 1
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_a_page_without_its_marker_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="has 0 places marked <!-- rounds -->"):
        make(tmp_path, "# Performance\n", monkeypatch)
