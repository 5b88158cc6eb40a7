"""The page as a file: whole, the same for the same runs, and honest when there is nothing."""

import json
import re
import shlex
import statistics
from pathlib import Path

import pytest

from fedbb.errors import RunError
from fedbb.report.groups import gather, group
from fedbb.report.page.report import (
    MOST_CLIENTS,
    classes,
    common_part,
    cost,
    curves,
    diagnostics,
    figure_data,
    is_reweighed,
    methods_table,
    partition,
    repeat_command,
    rest,
    run_settings,
    setting,
    settings_data,
    weights,
    word,
    write_report,
)
from fedbb.report.results import read_run, read_runs
from helpers.page_reader import PageReader
from helpers.run_builder import LEVELS, Sketch, build_all, write


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))


def test_the_page_is_one_sound_file_that_refers_to_nothing(report):
    reader = PageReader(report.read_text(encoding="utf-8"))
    assert reader.faults == []
    assert not {"link", "img", "iframe"} & set(reader.tags())
    assert reader.attributes("src") == []
    assert all(link.startswith("#") for link in reader.attributes("href"))


def test_equal_runs_give_equal_bytes(report, runs, tmp_path):
    write_report(gather([runs]), tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == report.read_bytes()


def test_its_data_tells_of_every_run_and_of_what_was_left_out(report):
    data = data_of(report)
    assert len(data["runs"]["runs"]) == 11
    assert len(data["left_out"]) == 2
    assert [len(one["methods"]) for one in data["comparisons"]] == [3, 2]


def test_the_setting_is_told_in_a_sentence(runs):
    comparison = group(gather([runs]).runs)[0]
    told = setting(comparison)
    assert told.endswith("6 rounds of 1 local epoch with small-cnn, learning rate 0.01.")
    assert "10 classes (multi-class), 6 clients" in told


def test_remarks_name_the_runs_they_hold_for(tmp_path):
    paths = build_all(tmp_path, [Sketch(seed=seed) for seed in range(2)])
    for path in paths:
        facts = json.loads((path / "federation.json").read_text())
        write(path / "federation.json", {**facts, "notes": ["client 3 is empty"]})
    (comparison,) = group(gather(paths).runs)
    assert diagnostics(comparison) == ["Client 3 is empty (FedAvg, seed 0; FedAvg, seed 1)."]


def test_without_a_finished_run_the_reasons_are_given(tmp_path):
    build_all(tmp_path, [Sketch(seed=seed, finished=False) for seed in range(5)])
    with pytest.raises(RunError, match=r"no finished run to report; .*unfinished.*; and 2 more"):
        write_report(gather([tmp_path]), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_common_and_own_settings_together_are_all_settings(tmp_path):
    recipe = {"local": {"lr": 0.5}}
    paths = build_all(tmp_path, [Sketch("fedavg", 0), Sketch("fedbb", 1, recipe=recipe)])
    write(paths[1] / "environment.json", {"fedbb": "0.1.0", "torch": "3.0", "cores": 2})
    runs = read_runs(paths)
    found = settings_data(runs, tmp_path)
    for run, told in zip(runs, found["runs"], strict=True):
        assert {**found["settings"], **told["settings"]} == run_settings(run)
        assert {**found["environment"], **told["environment"]} == dict(run.environment)
    assert set(found["runs"][1]["settings"]) == {"seed", "method.name", "local.lr"}
    assert found["runs"][1]["environment"] == {"torch": "3.0"}


def test_a_setting_only_one_run_has_is_not_common():
    common = common_part([{"a": "1", "b": "2"}, {"a": "1"}])
    assert common == {"a": "1"}
    assert rest({"a": "1", "b": "2"}, common) == {"b": "2"}


def test_settings_read_as_in_a_recipe():
    assert [word(value) for value in (True, None, {}, 0.5, "x")] == ["true", "–", "–", "0.5", "x"]


def test_methods_are_described_once_each(tmp_path):
    sketches = [Sketch(method, seed) for seed in (0, 1) for method in LEVELS]
    table = methods_table(read_runs(build_all(tmp_path, sketches)))
    assert [row[0] for row in table.rows] == ["FedAvg", "FedAvg-scaled", "FedBB"]
    assert all(row[1] and row[2] == "defaults" for row in table.rows)


def test_the_command_is_typed_beside_the_page_and_names_a_recipe_that_is_there(tmp_path):
    (folder,) = build_all(tmp_path / "my runs", [Sketch()])
    words = shlex.split(repeat_command(read_run(folder), tmp_path))
    assert words[:2] == ["fedbb", "run"]
    assert (tmp_path / words[2]).read_text() == (folder / "recipe.json").read_text()
    assert words[3:] == ["--out", str(Path("again") / folder.name)]


def test_a_run_elsewhere_is_named_by_its_whole_path(tmp_path):
    (folder,) = build_all(tmp_path / "runs", [Sketch()])
    words = shlex.split(repeat_command(read_run(folder), tmp_path / "page"))
    assert words[2] == str(folder / "recipe.json")


METHODS = ("fedavg", "fedavg-scaled", "fedbb")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    sketches = [Sketch(method, seed) for method in METHODS for seed in range(3)]
    (found,) = group(read_runs(build_all(tmp_path_factory.mktemp("runs"), sketches)))
    return found


def test_curves_are_means_and_deviations_over_seeds(comparison):
    found = curves(comparison, "f1")
    for part, (means, deviations) in zip(comparison.methods, found["methods"], strict=True):
        for at in range(6):
            values = [100 * run.rounds[at].scores["test"].macro["f1"] for run in part.runs]
            assert means[at] == round(statistics.mean(values), 2)
            assert deviations[at] == pytest.approx(statistics.stdev(values), abs=0.006)


def test_a_run_that_stopped_early_keeps_its_last_score_in_the_curve(tmp_path):
    sketches = [
        Sketch(seed=0, rounds=2),
        Sketch(seed=1, rounds=3, recipe={"rounds": {"number": 2}}),
    ]
    (found,) = group(read_runs(build_all(tmp_path, sketches)))
    ((means, deviations),) = curves(found, "f1")["methods"]
    assert len(means) == 3
    short, long = (run.rounds[-1].scores["test"].macro["f1"] for run in found.methods[0].runs)
    assert means[2] == round(100 * (short + long) / 2, 2)
    assert deviations[2] is not None


def test_gains_are_paired_by_seed_and_ordered_from_head_to_tail(comparison):
    found = classes(comparison)
    assert found["cases"] == sorted(found["cases"], reverse=True)
    base, _, fedbb = comparison.methods
    assert found["gains"][0] is None
    for name, gain in zip(found["names"], found["gains"][2][0], strict=True):
        at = comparison.federation.classes.index(name)
        own, rival = (
            [run.summary.final.scores["test"].per_class["recall"][at] for run in part.runs]
            for part in (fedbb, base)
        )
        gaps = [100 * (a - b) for a, b in zip(own, rival, strict=True)]
        assert gain == pytest.approx(statistics.mean(gaps), abs=0.006)


def test_seeds_that_only_one_method_has_do_not_shift_the_pairs(tmp_path):
    wanted = [
        *(Sketch("fedavg", seed) for seed in (0, 1, 2)),
        Sketch("fedbb", 1),
        Sketch("fedbb", 2),
    ]
    (found,) = group(read_runs(build_all(tmp_path, wanted)))
    base, fedbb = found.methods
    drawn = classes(found)
    at = found.federation.classes.index(drawn["names"][0])
    own, rival = (
        [run.summary.final.scores["test"].per_class["recall"][at] for run in runs]
        for runs in (fedbb.runs, base.runs[1:])
    )
    gaps = [100 * (a - b) for a, b in zip(own, rival, strict=True)]
    assert drawn["gains"][1][0][0] == pytest.approx(statistics.mean(gaps), abs=0.006)
    assert drawn["gains"][1][1][0] == pytest.approx(statistics.stdev(gaps), abs=0.006)


def test_without_a_common_seed_there_is_no_gain(tmp_path):
    paths = build_all(tmp_path, [Sketch("fedavg", 0), Sketch("fedbb", 1)])
    (found,) = group(read_runs(paths))
    means, _ = classes(found)["gains"][1]
    assert set(means) == {None}


def test_weights_are_told_of_methods_that_change_them(comparison):
    assert [is_reweighed(part) for part in comparison.methods] == [False, False, True]
    found = weights(comparison.methods[2])
    assert sum(found["before"]) == pytest.approx(100, abs=0.1)
    assert sum(found["after"]) == pytest.approx(100, abs=0.1)
    clients = {client.client: client for client in comparison.methods[2].runs[0].federation.known}
    spreads = [clients[number].dispersion for number in found["clients"]]
    assert spreads == sorted(spreads)


def test_of_many_clients_the_largest_are_drawn(tmp_path):
    (found,) = group(read_runs(build_all(tmp_path, [Sketch(clients=MOST_CLIENTS + 20)])))
    drawn = partition(found.first)
    assert drawn["of"] == MOST_CLIENTS + 20
    assert len(drawn["clients"]) == len(drawn["counts"]) == MOST_CLIENTS
    sizes = sorted((client.samples for client in found.federation.known), reverse=True)
    assert sum(drawn["samples"]) == sum(sizes[:MOST_CLIENTS])
    assert drawn["clients"] == sorted(drawn["clients"])


def test_cost_is_the_mean_time_of_a_run_and_its_score(comparison):
    seconds, score, _ = cost(comparison, comparison.methods[0])
    finals = [
        run.summary.final.scores["test"].macro["balanced_accuracy"]
        for run in comparison.methods[0].runs
    ]
    assert seconds == 4.5
    assert score == round(100 * statistics.mean(finals), 2)


def test_undefined_scores_become_null(tmp_path):
    (found,) = group(read_runs(build_all(tmp_path, [Sketch(undefined=(0, 3))])))
    text = json.dumps(figure_data(found), allow_nan=False)
    assert json.loads(text)["classes"]["scores"][0][0].count(None) == 2
