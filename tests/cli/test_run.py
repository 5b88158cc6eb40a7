import json
import signal

import pytest
from PIL import Image

from fedbb.runs.folder import RunFolder
from helpers.commands import fedbb, started
from helpers.cover import few
from helpers.small_run import small_recipe


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.json"
    path.write_text(small_recipe(tmp_path).model_dump_json())
    return path


def test_a_run_prints_a_line_for_each_round_and_ends_with_best_and_final(recipe, monkeypatch):
    done = fedbb("run", recipe, monkeypatch=monkeypatch)
    assert done.code == 0
    heading, *lines = done.out.splitlines()
    assert heading.startswith("fedbb on npz, seed 0: 4 rounds, kept in runs/npz-fedbb-seed0-")
    assert [line.split()[1] for line in lines[:4]] == ["1/4", "2/4", "3/4", "4/4"]
    assert "left 0:00" in lines[3]
    assert "chosen on test data" in lines[4]
    assert lines[5].startswith("run folder: runs/npz-fedbb-seed0-")


def test_json_prints_one_object_a_line_the_summary_last(recipe, monkeypatch):
    done = fedbb("run", recipe, "--json", "--out", "here", monkeypatch=monkeypatch)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record["round"] for record in records[:4]] == [1, 2, 3, 4]
    assert records[4] == RunFolder(recipe.parent / "here").read_json("summary.json")


def test_quiet_prints_nothing(recipe, monkeypatch):
    assert fedbb("run", recipe, "--quiet", monkeypatch=monkeypatch).out == ""


def test_set_changes_a_value(recipe, monkeypatch):
    options = ("--set", "rounds.number=2", "--out", "two", "--quiet")
    assert fedbb("run", recipe, *options, monkeypatch=monkeypatch).code == 0
    assert len(RunFolder(recipe.parent / "two").records()) == 2


def test_a_run_folder_resumes_by_itself(recipe, monkeypatch):
    fedbb("run", recipe, "--out", "run", "--quiet", monkeypatch=monkeypatch)
    done = fedbb("run", "--resume", "run", monkeypatch=monkeypatch)
    assert done.code == 0
    assert "final" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.toml"], "recipe nowhere.toml cannot be read"),
        (["RECIPE", "--set", "local.rl=1"], "local.rl is unknown; did you mean lr?"),
        (["RECIPE", "--set", "method.name=fedbbb"], "method.name 'fedbbb' is unknown"),
        (["RECIPE", "--set", "method.options.gama=1"], "did you mean gamma?"),
        (["RECIPE", "--set", "method.options.beta=1.0"], "beta must be in [0, 1)"),
        (["RECIPE", "--set", "method.options.beta=-0.1"], "beta must be in [0, 1)"),
        (["RECIPE", "--set", "method.options.beta='x'"], "a value of the wrong type"),
        (["RECIPE", "--set", "method.options.tau=0"], "tau must be a finite number above 0"),
        (["RECIPE", "--set", "method.options.mu=0"], "mu must be a finite number above 0"),
        (["RECIPE", "--set", "method.options.gamma=1.1"], "gamma must be in [0, 1]"),
        (["RECIPE", "--set", "method.options.gamma=-0.1"], "gamma must be in [0, 1]"),
        (["RECIPE", "--set", "method.options.reading=best"], "reading must be one of share-std"),
        (["RECIPE", "--set", "data.name=digit"], "did you mean digits?"),
        (["RECIPE", "--set", "data.path=none.npz"], "none.npz"),
        (["RECIPE", "--set", "model.name=resnet"], "known"),
        (["RECIPE", "--set", "data.partition.clients=1000"], "1000"),
        (["RECIPE", "--set", "data.partition.kind=evn"], "did you mean even?"),
        (["RECIPE", "--set", "data.partition.kind=label-skew"], "concentration"),
        (["RECIPE", "--set", "data.partition={kind='column', column='ward'}"], "ward"),
        (["."], "is a folder"),
        (["--resume", "."], "holds no run to resume"),
        (["RECIPE", "--out", "small.npz"], "is a file"),
    ],
)
def test_bad_input_ends_with_one_message_and_exit_code_two(recipe, monkeypatch, words, message):
    words = [recipe if word == "RECIPE" else word for word in words]
    done = fedbb("run", *words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("signum", few([signal.SIGINT, signal.SIGTERM], 1))
def test_ctrl_c_ends_with_130_and_everything_finished_is_kept(recipe, monkeypatch, signum):
    words = ("run", recipe, "--set", "rounds.number=100000", "--out", "run")
    with started(*words, cwd=recipe.parent) as process:
        while not (line := process.stdout.readline()).startswith("round 3/"):
            assert line, process.stderr.read()
        process.send_signal(signum)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    folder = RunFolder(recipe.parent / "run")
    kept = len(folder.records())
    assert f"stopped after round {kept} of 100000, which is saved" in out
    assert "fedbb run --resume run" in out
    assert folder.latest().round == kept


def test_ctrl_c_in_the_set_up_names_no_folder_to_resume(recipe, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedbb.runs.runner.prepare", interrupted)
    done = fedbb("run", recipe, "--out", recipe.parent / "run", monkeypatch=monkeypatch)
    assert done.code == 130
    assert "stopped before the first round" in done.out
    assert "--resume" not in done.out
    assert not RunFolder(recipe.parent / "run").is_run()


def test_decoding_of_images_is_shown(tmp_path, monkeypatch):
    lines = ["image,label"]
    for number in range(30):
        Image.new("L", (8, 8), color=8 * number).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number % 2]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    recipe = tmp_path / "table.toml"
    recipe.write_text(
        f"""
        [data]
        name = "table"
        path = "{tmp_path / "labels.csv"}"
        options = {{ image_column = "image", class_column = "label", channels = 1 }}
        partition = {{ kind = "even", clients = 2 }}
        [method]
        name = "fedavg"
        [rounds]
        number = 1
        """
    )
    done = fedbb("run", recipe, "--out", tmp_path / "run", monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert "images decoded: 30 of 30" in done.out


def test_a_warning_is_shown_once_whoever_gives_it(recipe, monkeypatch):
    words = ("--set", "method={name='fedlc', options={denominator='paper'}}", "--out", "literal")
    done = fedbb("run", recipe, *words, monkeypatch=monkeypatch)
    assert done.out.count("warning: ") == 1


@pytest.mark.parametrize("setting", ["local.device=warp", "data.partition.clients=999"])
def test_a_run_that_fails_in_set_up_exits_with_2_and_the_corrected_command_runs(
    recipe, monkeypatch, setting
):
    options = ("--set", "rounds.number=1", "--out", "here", "--quiet")
    failed = fedbb("run", recipe, "--set", setting, *options, monkeypatch=monkeypatch)
    assert failed.code == 2
    assert failed.err.startswith("fedbb: ")
    assert "Traceback" not in failed.err
    assert not (recipe.parent / "here").exists()
    assert fedbb("run", recipe, *options, monkeypatch=monkeypatch).code == 0
