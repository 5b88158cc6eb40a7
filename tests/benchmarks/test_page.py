"""The page and its figure are made from results, wherever those came from."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from benchmarks import page, results
folder = Path(sys.argv[1])
spread = {"median": 0.5, "least": 0.4, "most": 0.8}
variant = {"ratio": spread, "images_per_second": spread, "outside_training": spread}
model = {"clients": 10, "images": 500, "variants": {"bare": variant, "pool": variant}}
results.write("rounds", {"repeats": 6, "models": {"resnet56": model}}, folder)
whole = {"ratio": {"first": 3.0, "later": 2.0, "peak": 4.0}, "version": "1.0", "first": spread,
         "later": spread, "peak": 2**30, "processes": 3}
peers = {"fedbb": whole, "Other": {"failed": "no"}}
results.write("peers", {"repeats": 5, "rounds": 5, "peers": peers}, folder)
sys.argv = ["page", "--results", str(folder), "--page", sys.argv[2]]
page.main()
"""


def make(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(tmp_path / "page.md")]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_results_go_between_the_markers_of_the_page_and_into_its_figure(tmp_path):
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert make(tmp_path, text).returncode == 0
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| ResNet-56, 10 × 500 | pool | 0.50 (0.40–0.80) | 2.00 | 0 | 50.0 % |" in page
    assert "| fedbb 1.0 | **2.00** · 0.50 (0.40–0.80) s |" in page
    assert "Other gave no result." in page
    assert "](page.svg)\n<!-- /figure -->" in page
    assert "<!-- growth -->\n*Not measured yet.*\n<!-- /growth -->" in page
    assert (tmp_path / "page.svg").read_text(encoding="utf-8").count("ResNet-56") >= 1
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_a_page_without_its_marker_is_refused(tmp_path):
    done = make(tmp_path, "# Performance\n")
    assert done.returncode == 1
    assert "has 0 places marked <!-- rounds -->" in done.stderr
