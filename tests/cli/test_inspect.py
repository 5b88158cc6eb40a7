import json
import tomllib

import numpy as np
import pytest

from fedbb.imbalance import count_groups
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import read_recipe
from fedbb.runs.federation import prepare
from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.small_run import small_recipe

TABLE = "image,site,label\n" + "".join(
    f"img{n}.png,{'north' if n % 3 else 'south'},{'cat' if n % 5 else 'dog'}\n" for n in range(200)
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(TABLE)
    return path


def test_a_table_is_shown_by_level(table, monkeypatch):
    done = fedbb("inspect", table, "--clients", "site", monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert "200 samples (multi-class), 2 classes, 2 clients" in done.out
    assert "north" in done.out
    assert "advice beta" in done.out


def test_json_holds_everything(table, monkeypatch):
    done = fedbb("inspect", table, "--clients", "site", "--json", monkeypatch=monkeypatch)
    found = json.loads(done.out)
    assert found["tally"]["clients"] == ["north", "south"]
    assert found["tally"]["positive"] == [[107, 26], [53, 14]]
    assert {"cases", "classes", "clients", "warnings", "advice", "settings"} <= set(found)
    assert "img7" not in done.out


def test_quiet_says_nothing_and_out_writes_the_folder(table, tmp_path, monkeypatch):
    out = tmp_path / "found"
    done = fedbb("inspect", table, "--quiet", "--out", out, monkeypatch=monkeypatch)
    assert (done.code, done.out, done.err) == (0, "", "")
    names = {path.name for path in out.iterdir()}
    assert {"index.html", "classes.csv", "clients.csv", "counts.csv"} <= names
    assert json.loads((out / "inspection.json").read_text())["samples"] == 200
    assert tomllib.loads((out / "suggestion.toml").read_text())["method"]["name"] == "fedbb"
    assert not any("img7" in path.read_text() for path in out.iterdir())


@pytest.mark.parametrize(
    ("words", "clients"),
    [
        (("--divide", 4), 4),
        (("--divide", 3, "--kind", "quantity-skew", "--concentration", 5), 3),
        (("--divide", 5, "--kind", "even"), 5),
        (("--clients", "site", "--divide", 1), 1),
    ],
)
def test_labels_may_be_divided(table, monkeypatch, words, clients):
    done = fedbb("inspect", table, *words, "--json", monkeypatch=monkeypatch)
    assert len(json.loads(done.out)["tally"]["clients"]) == clients


def test_settings_change_what_is_shown(table, monkeypatch):
    words = ("--set", "beta=0.5", "--set", "gamma=0", "--set", "mu=unit", "--json")
    found = json.loads(fedbb("inspect", table, *words, monkeypatch=monkeypatch).out)
    assert found["settings"]["beta"] == 0.5
    assert found["settings"]["mu"] == "unit"
    assert "saturated" in [warning["kind"] for warning in found["warnings"]]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--set", "bta=1"), "did you mean beta"),
        (("--set", "beta=1"), "beta must be in [0, 1)"),
        (("--set", "beta=much"), "--set"),
        (("--clients", "sit"), "did you mean site"),
        (("--divide", 3, "--kind", "odd"), "unknown partition"),
        (("--divide", 500), "there are 200"),
        (("--partition", "nowhere.json"), "cannot read the partition"),
    ],
)
def test_what_cannot_be_is_refused_with_exit_code_2(table, monkeypatch, words, complaint):
    done = fedbb("inspect", table, *words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert complaint in done.err
    assert "Traceback" not in done.err


def test_an_unknown_source_is_refused_with_the_nearest_name(tmp_path, monkeypatch):
    done = fedbb("inspect", "digit", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "did you mean digits" in done.err
    assert fedbb("inspect", tmp_path, monkeypatch=monkeypatch).code == 2
    assert fedbb("inspect", tmp_path / "no.csv", monkeypatch=monkeypatch).code == 2


def test_arrays_are_inspected_without_images(tmp_path, monkeypatch):
    path = tmp_path / "labels.npz"
    np.savez(path, labels=np.eye(3)[np.arange(60) % 3], site=np.arange(60) % 2)
    found = json.loads(
        fedbb("inspect", path, "--clients", "site", "--json", monkeypatch=monkeypatch).out
    )
    assert found["tally"]["task"] == "multilabel"
    assert found["tally"]["samples"] == [30, 30]


def test_advice_on_a_data_set_is_a_recipe_that_runs(tmp_path, monkeypatch):
    words = ("--divide", 3, "--concentration", 0.3, "--suggest")
    done = fedbb("inspect", "digits", *words, monkeypatch=monkeypatch)
    recipe = tmp_path / "advised.toml"
    recipe.write_text(done.out)
    settings = ("rounds.number=1", "engine=inline", "data.long_tail=0.05")
    chosen = [word for setting in settings for word in ("--set", setting)]
    ran = fedbb("run", recipe, "--out", tmp_path / "run", *chosen, "-q", monkeypatch=monkeypatch)
    assert ran.code == 0, ran.err
    federation = json.loads((tmp_path / "run" / "federation.json").read_text())
    assert len(federation["clients"]) == 3


def test_a_recipe_a_run_and_its_partition_give_the_runs_own_clients(tmp_path, monkeypatch):
    recipe = small_recipe(tmp_path)
    list(run(recipe, tmp_path / "run"))
    federation = json.loads((tmp_path / "run" / "federation.json").read_text())
    positives = [client["positives"] for client in federation["clients"]]
    source = tmp_path / "recipe.json"
    source.write_text(recipe.model_dump_json())
    for given in (source, tmp_path / "run", tmp_path / "run" / "partition.json"):
        done = fedbb("inspect", given, "--json", monkeypatch=monkeypatch)
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert found["tally"]["positive"] == positives
        weights = [client["weight"] for client in federation["clients"]]
        assert found["clients"]["weights"]["share-std"] == pytest.approx(weights)
        loss = [client["loss_weight"] for client in federation["clients"]]
        assert found["clients"]["loss_weight"] == pytest.approx(loss)


def test_a_recipe_of_central_training_is_one_client(tmp_path, monkeypatch):
    recipe = tmp_path / "central.toml"
    recipe.write_text('engine = "central"\n[data]\nname = "digits"\n[method]\nname = "pnb"\n')
    done = fedbb("inspect", recipe, "--json", monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert json.loads(done.out)["tally"]["clients"] == ["0"]


def test_a_partition_without_a_recipe_is_refused_with_the_way_out(tmp_path, monkeypatch):
    recipe = small_recipe(tmp_path)
    list(run(recipe, tmp_path / "run"))
    lone = tmp_path / "lone.json"
    lone.write_bytes((tmp_path / "run" / "partition.json").read_bytes())
    done = fedbb("inspect", lone, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "--partition" in done.err


def test_a_tables_partition_file_divides_it(table, tmp_path, monkeypatch):
    from fedbb.partition.partition import group_owners

    labels = np.array([int(n % 5 == 0) for n in range(200)])
    group_owners(np.arange(200) % 4, 4, labels, {}).save(tmp_path / "parts.json")
    words = ("--partition", tmp_path / "parts.json", "--json")
    found = json.loads(fedbb("inspect", table, *words, monkeypatch=monkeypatch).out)
    assert found["tally"]["samples"] == [50] * 4


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
