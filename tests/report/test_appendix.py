"""How a page's figures came about."""

import shlex
from pathlib import Path

from fedbb.report.appendix import command, environment_section, methods_section, runs_section
from fedbb.report.groups import group
from fedbb.report.method_comparison import compare_methods
from fedbb.report.results import read_run, read_runs
from helpers.run_builder import LEVELS, Sketch, build_all, write


def test_methods_are_explained_once_each(tmp_path):
    sketches = [Sketch(method, seed) for seed in (0, 1) for method in LEVELS]
    section = methods_section(read_runs(build_all(tmp_path, sketches)))
    (table,) = section.blocks[0].tables
    assert [row[0] for row in table.rows] == ["FedAvg", "FedAvg-scaled", "FedBB"]
    assert all(row[1] and row[2] == "defaults" for row in table.rows)


def test_settings_and_runs_are_listed_for_each_comparison(tmp_path):
    sketches = [Sketch(method, recipe={"local": {"lr": 0.07}}) for method in LEVELS]
    runs = read_runs(build_all(tmp_path / "runs", sketches))
    section = runs_section([compare_methods(part) for part in group(runs)], tmp_path)
    settings, listed = section.blocks[0].tables
    assert ("local.lr", "0.07") in settings.rows
    assert not {"seed", "method.name"} & {row[0] for row in settings.rows}
    assert [row[0] for row in listed.rows] == [run.path.name for run in runs]
    assert section.blocks[1].lines == tuple(command(run, tmp_path) for run in runs)


def test_the_command_is_typed_beside_the_page_and_names_a_recipe_that_is_there(tmp_path):
    (folder,) = build_all(tmp_path / "my runs", [Sketch()])
    words = shlex.split(command(read_run(folder), tmp_path))
    assert words[:2] == ["fedbb", "run"]
    assert (tmp_path / words[2]).read_text() == (folder / "recipe.json").read_text()
    assert words[3:] == ["--out", str(Path("again") / folder.name)]


def test_a_run_elsewhere_is_named_by_its_whole_path(tmp_path):
    (folder,) = build_all(tmp_path / "runs", [Sketch()])
    words = shlex.split(command(read_run(folder), tmp_path / "page"))
    assert words[2] == str(folder / "recipe.json")


def test_each_environment_is_listed_once(tmp_path):
    folders = build_all(tmp_path, [Sketch(seed=seed) for seed in range(3)])
    write(folders[1] / "environment.json", {"torch": "9.9"})
    (block,) = environment_section(read_runs(folders)).blocks
    assert [table.rows[0] for table in block.tables] == [("fedbb", "0.1.0"), ("torch", "9.9")]
