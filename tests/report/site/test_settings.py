"""Settings told once where they are common, and by each run where they are not."""

from fedbb.report.results import read_runs
from fedbb.report.site.settings import common_part, rest, run_settings, settings_data, word
from helpers.run_builder import Sketch, build_all, write


def test_common_and_own_settings_together_are_all_settings(tmp_path):
    recipe = {"local": {"lr": 0.5}}
    paths = build_all(tmp_path, [Sketch("fedavg", 0), Sketch("fedbb", 1, recipe=recipe)])
    write(paths[1] / "environment.json", {"fedbb": "0.1.0", "torch": "3.0", "cores": 2})
    runs = read_runs(paths)
    found = settings_data(runs)
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
