"""What `fedbb inspect` finds: settings and loss weights are those that a run of the recipe has."""

import json

import pytest

from fedbb.imbalance.counts import count_groups
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import read_recipe
from fedbb.runs.federation import prepare
from helpers.commands import fedbb

RECIPE = """
[data]
name = "digits"
partition = {{ kind = "label-skew", clients = 4, concentration = 0.3 }}
[model]
name = "small-cnn"
[method]
name = "{name}"
options = {options}
"""

METHODS = [
    ("fedbb", "{}"),
    ("fedbb", '{ class_factor = "effective" }'),
    ("fedbb", "{ alpha_min = 0.2 }"),
    ("fedbb", '{ mu = "unit" }'),
    ("pnb", '{ beta = 0.99, tau = 2.0, class_factor = "effective", alpha_min = 0.1 }'),
    ("fedbb-printed", "{ mu = 2.0 }"),
    ("fedbb-plus", "{}"),
    ("fedbb-plus", "{ beta = 0.999, margin = 1.0 }"),
    ("fedavg-scaled", '{ class_factor = "effective" }'),
    ("moon+fedbb", '{ fedbb = { class_factor = "effective", mu = 1.0 } }'),
]


def run_weights(path) -> list[float]:
    """Return the mean weight of each client's cases in a run of the recipe."""
    recipe = read_recipe(path)
    federation, method = prepare(recipe), check_recipe(recipe)
    dataset = federation.dataset
    groups = federation.partition.clients
    counts = count_groups(dataset.train.labels, groups, dataset.task, len(dataset.classes))
    return [method.loss.mean_weight(count, dataset.task) for count in counts]


@pytest.mark.parametrize(("name", "options"), METHODS)
def test_loss_weights_are_those_of_a_run(tmp_path, monkeypatch, name, options) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(name=name, options=options))
    done = fedbb("inspect", path, "--json", monkeypatch=monkeypatch)
    found = json.loads(done.out)
    assert found["clients"]["loss_weight"] == pytest.approx(run_weights(path), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("fedbb", "{}", [2.90, 2.54, 2.97, 2.97]),
        ("fedbb", '{ class_factor = "effective" }', [0.78, 0.64, 0.97, 5.20]),
        ("fedbb-plus", "{}", [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_known_weights_of_four_clients_of_digits(
    tmp_path, monkeypatch, name, options, weights
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(name=name, options=options))
    found = json.loads(fedbb("inspect", path, "--json", monkeypatch=monkeypatch).out)
    assert found["clients"]["loss_weight"] == pytest.approx(weights, abs=0.005)


def test_single_class_clients_that_learn_are_not_warned_of(tmp_path, monkeypatch) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("site,label\n" + "a,x\nb,y\n" * 50)
    for setting, expected in (("alpha_min=0.0", True), ("alpha_min=0.1", False)):
        command = ("inspect", path, "--clients", "site", "--json", "--set", setting)
        found = json.loads(fedbb(*command, monkeypatch=monkeypatch).out)
        assert ("single-class" in [one["kind"] for one in found["warnings"]]) is expected


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("alpha_min=0.7", "alpha_min must be in"),
        ("class_factor=beta", "class_factor = 'beta' is refused"),
        ("margin=-1", "margin must be"),
        ("mu=none", "mu"),
        ("alpa_min=0.1", "did you mean alpha_min?"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, monkeypatch, setting, words) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("label\nx\ny\n")
    done = fedbb("inspect", path, "--set", setting, monkeypatch=monkeypatch)
    assert done.code == 2
    assert words in done.err
