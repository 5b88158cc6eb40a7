"""Private runs on Flower whose sites have models of their own: scores leave as sums only."""

import pytest

from fedbb.errors import FedbbError
from fedbb.recipes.check import check_recipe
from fedbb.runs.folder import RunFolder
from helpers.flower_loopback import take_identity
from helpers.secagg_grid import enrolled, open_grid, private_recipe, private_run
from helpers.small_run import finish

NETWORKS = {"by_client": ["linear", {"name": "mlp", "options": {"hidden": [6]}}]}
MLP = {"name": "mlp", "options": {"hidden": [6]}}
CASES = {
    "fedper": (MLP, {}),
    "local": (MLP, {}),
    "fedrep": (MLP, {}),
    "fedbn": ({"name": "resnet11"}, {}),
    "fedmd": (MLP, {"batch_size": 8}),
    "fedmd in turn": (NETWORKS, {"batch_size": 8}),
    "rhfl": (MLP, {"batch_size": 8, "confidence": "equal"}),
}
FIXED = {"quorum": 1.0}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


def recipe_of(tmp_path, case, **changes):
    model, options = CASES[case]
    method = {"name": case.split()[0], "options": options}
    values = {"defense": FIXED, "model": model, **changes}
    recipe = private_recipe(tmp_path, method=method, **values)
    public = recipe.data.model_dump(mode="json") | {"public": {"images": 12}}
    return recipe.model_validate(recipe.model_dump(mode="json") | {"data": public})


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow) for c in CASES])
def test_a_run_has_the_simulated_runs_model_and_scores(tmp_path, case):
    recipe = recipe_of(tmp_path, case)
    simulated, theirs = finish(recipe, tmp_path / "simulated")
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    summary, ours = private_run(recipe, tmp_path / "flower", federation, grid)
    assert summary["sha256"] == simulated["sha256"]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["scores_of"]["models"] == "clients"
        assert "worst" not in mine["scores_of"]
        assert mine["scores_of"]["trained"] == other["scores_of"]["trained"] == 3
        for metric, value in other["scores"]["test"]["macro"].items():
            assert mine["scores"]["test"]["macro"][metric] == pytest.approx(value, abs=1e-6)
            std = other["scores_of"]["std"]["test"][metric]
            assert mine["scores_of"]["std"]["test"][metric] == pytest.approx(std, abs=1e-6)
    # Nothing but the stages of secure sums left a site.
    assert not {passed.stage for passed in grid.seen} & {"evaluate", "evaluate.own", "train"}
    assert RunFolder(tmp_path / "flower").read_json("scores.json")["final"]["sites"] == []


def test_scores_over_changing_groups_are_refused(tmp_path):
    recipe = recipe_of(tmp_path, "fedper", clients=4, defense={"quorum": 0.6})
    federation = enrolled(recipe, tmp_path, sites=4)
    with pytest.raises(FedbbError, match="under FedPer every site has the classifier for itself"):
        private_run(recipe, tmp_path / "flower", federation)
    with pytest.raises(FedbbError, match='score = "sites" in a private run: the difference'):
        private_run(recipe, tmp_path / "flower", federation, score="sites")


@pytest.mark.parametrize(
    ("name", "part"), [("rhfl", "SingleTable"), ("pfedla", "LayerMixing"), ("ripfl", "Reliability")]
)
def test_what_needs_more_than_sums_is_refused_by_name(tmp_path, name, part):
    recipe = private_recipe(tmp_path, method={"name": name})
    data = recipe.data.model_dump(mode="json") | {"public": {"images": 12}}
    recipe = recipe.model_validate(recipe.model_dump(mode="json") | {"data": data})
    with pytest.raises(FedbbError, match=rf"{part} of .* needs the figures of single clients"):
        check_recipe(recipe)
