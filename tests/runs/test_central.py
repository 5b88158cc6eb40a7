from dataclasses import replace

from fedbb.partition.registry import Rule
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_run import finish, small_recipe

NONE = Rule()


def central(folder, **changes):
    recipe = small_recipe(folder, engine="central", **changes)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"partition": NONE})})


def test_central_training_is_one_client_whose_momentum_goes_on(tmp_path):
    recipe = central(tmp_path, method={"name": "fedavg"}, rounds={"number": 3})
    summary, records = finish(recipe, tmp_path / "run")
    assert [len(record["clients"]) for record in records] == [1, 1, 1]
    assert records[0]["clients"][0]["steps"] == 8
    folder = RunFolder(tmp_path / "run")
    memory = folder.client_states.load(0, folder.latest().state_rounds[0])
    assert list(memory.optimizer) == ["momentum"]
    left = run(recipe, tmp_path / "left")
    next(left)
    left.close()
    assert finish(recipe, tmp_path / "left", resume=True)[0]["sha256"] == summary["sha256"]


def test_central_training_differs_from_a_federation_of_one_only_by_its_momentum(tmp_path):
    local = {"batch_size": 8, "lr": 0.05, "momentum": 0.0}
    options = {"method": {"name": "fedavg"}, "local": local}
    alone = small_recipe(tmp_path, **options)
    partition = replace(alone.data.partition, clients=1)
    data = alone.data.model_copy(update={"partition": partition})
    one, _ = finish(alone.model_copy(update={"data": data}), tmp_path / "one")
    all_, _ = finish(central(tmp_path, **options), tmp_path / "all")
    assert one["sha256"] == all_["sha256"]
