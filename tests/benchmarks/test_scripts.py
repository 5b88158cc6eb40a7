"""The benchmarks run at a tiny size, and the page takes what they write; no time is judged."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import page

ROOT = Path(__file__).parents[2]


def run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def test_a_script_that_is_not_run_here_explains_itself():
    assert "--repeats" in run("start", "--help")


@pytest.mark.slow
def test_rounds_are_given_as_ratios_to_the_bare_loop(tmp_path):
    tiny = ["--models", "small-cnn", "--clients", "2", "--images", "40", "--repeats", "2"]
    output = run("rounds", *tiny, "--variants", "bare", "inline", "--out", str(tmp_path))
    result = read(tmp_path, "rounds")
    variants = result["models"]["small-cnn"]["variants"]
    assert variants["bare"]["ratio"] == {"median": 1.0, "least": 1.0, "most": 1.0}
    ratio = variants["inline"]["ratio"]
    assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]
    assert len(variants["inline"]["loss"]) == 2
    assert {"processor", "cores", "libc", "torch", "fedbb", "date"} <= set(result["machine"])
    assert "inline" in output


@pytest.mark.slow
def test_steps_compare_both_tasks(tmp_path):
    run("steps", "--models", "small-cnn", "--pairs", "4", "--out", str(tmp_path))
    tasks = read(tmp_path, "steps")["models"]["small-cnn"]
    assert set(tasks) == {"multiclass", "multilabel"}
    for measured in tasks.values():
        assert measured["ratio"]["least"] <= measured["ratio"]["median"]
        assert measured["step_microseconds"] > measured["loss_alone_microseconds"]["pnb"] > 0


@pytest.mark.slow
def test_bf16_is_compared_with_float32(tmp_path):
    run("precision", "--models", "small-cnn", "--pairs", "2", "--out", str(tmp_path))
    result = read(tmp_path, "precision")
    measured = result["models"]["small-cnn"]
    assert measured["speed"]["least"] <= measured["speed"]["median"] <= measured["speed"]["most"]
    assert measured["float32_images_per_second"] > 0
    assert "| small CNN | " in page.precision(result)


@pytest.mark.slow
def test_growth_tells_time_and_memory_of_every_case(tmp_path):
    few = ["--clients", "60", "--samples", "120", "--factors", "1", "--base", "100"]
    run("growth", *few, "--repeats", "1", "--engine", "inline", "--out", str(tmp_path))
    result = read(tmp_path, "growth")
    assert [case["clients"] for case in result["clients"]] == [60]
    assert all(case["peak"]["median"] > 0.05 for case in result["clients"] + result["samples"])


@pytest.mark.slow
def test_many_clients_are_timed_with_each_engine(tmp_path):
    few = ["--clients", "60", "--samples", "120", "--repeats", "1"]
    output = run("many", *few, "--out", str(tmp_path))
    result = read(tmp_path, "many")
    assert [case["engine"] for case in result["cases"]] == ["inline", "pool"]
    assert all(case["first"]["least"] > case["later"]["median"] > 0 for case in result["cases"])
    assert all(case["peak"] > 0.05 for case in result["cases"])
    assert output.count("60 clients, ") == 2
    assert page.many(result).count("| 60 | 120 | ") == 2


@pytest.mark.slow
def test_scoring_in_small_batches_is_compared_to_the_bit(tmp_path):
    # 321 images: 256 + 65, and 5 batches of 64 + 1.
    few = ["--models", "linear", "--pairs", "2", "--images", "321"]
    run("scoring", *few, "--out", str(tmp_path))
    measured = read(tmp_path, "scoring")["models"]["linear"]
    assert measured["logits"] == 3210
    assert measured["different"] <= 10
    assert measured["largest_difference"] < 1e-5
    assert "| linear | " in page.scoring(read(tmp_path, "scoring"))


@pytest.mark.slow
def test_a_framework_run_is_timed_watched_and_proved(tmp_path):
    tiny = ["--clients", "2", "--images", "40", "--repeats", "0", "--rounds", "2"]
    run("frameworks", "--peers", "bare loop", *tiny, "--out", str(tmp_path))
    peer = read(tmp_path, "peers")["peers"]["bare loop"]
    assert peer["peak"] > 2**26
    assert peer["first"]["median"] > peer["later"]["median"] > 0
    assert peer["loss"][-1] < peer["loss"][0]


@pytest.mark.slow
def test_a_run_on_mapped_images_keeps_them_on_disk(tmp_path):
    output = run("large_data", str(tmp_path), "--gigabytes", "0.3")
    assert output.startswith("0.30 GB of images")
    mapped = [int(number) for number in re.findall(r"mapped files (\d+) MB", output)]
    assert len(mapped) >= 3
    # Libraries are mapped files too; the images would add 300 MB and more.
    assert max(mapped) < 400


@pytest.mark.slow
def test_a_reply_costs_bytes_time_and_memory_by_size(tmp_path):
    run("scaling", "--sizes", "1000", "600000", "--repeats", "2", "--out", str(tmp_path))
    small, large = read(tmp_path, "scaling")["sizes"]
    assert 4_000 < small["bytes"] < 5_000
    assert 2_400_000 < large["bytes"] < 2_401_000
    assert set(large["seconds"]) == {"pack", "unpack", "check", "add"}
    assert all(seconds >= 0 for seconds in large["seconds"].values())
