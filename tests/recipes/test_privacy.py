import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedbb.errors import RecipeError, RunError
from fedbb.recipes import privacy as checks
from fedbb.recipes.check import check_recipe
from fedbb.recipes.privacy import agree, agreement_of, exposure_notes, least_cohort, roster_terms
from fedbb.recipes.reader import make_recipe
from helpers.secagg_clients import make_roster
from helpers.small_run import finish, small_recipe


def recipe_of(clients=5, **changes):
    data = {"name": "digits", "partition": {"kind": "even", "clients": clients}}
    values = {"privacy": "masked", "data": data, "method": {"name": "fedbb"}, **changes}
    return make_recipe(values)


@pytest.mark.parametrize(
    ("clients", "changes", "reason"),
    [
        (5, {"defense": {"rule": "krum", "byzantine": 1}}, "exclude each other"),
        (2, {}, "needs 3 clients in a round and 2 take"),
        (5, {"rounds": {"number": 1, "participation": 0.4}}, "needs 3 clients in a round"),
    ],
)
def test_what_secure_sums_do_not_support_is_refused(clients, changes, reason):
    with pytest.raises(RecipeError, match=reason):
        check_recipe(recipe_of(clients, **changes))


def test_central_training_has_nothing_to_hide():
    with pytest.raises(RecipeError, match="one client holds all"):
        check_recipe(recipe_of(engine="central", data={"name": "digits"}))


@pytest.mark.parametrize(
    ("privacy", "module", "extra"),
    [("masked", "cryptography", "private"), ("bfv", "tenseal", "he")],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, privacy, module, extra):
    found = checks.find_spec
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == module else found(name))
    with pytest.raises(RecipeError, match=rf"{module}.*fedbb\[{extra}\]"):
        check_recipe(recipe_of(privacy=privacy))


WITHOUT = """
import sys
sys.modules["cryptography"] = sys.modules["tenseal"] = None  # as where they are not installed
from pathlib import Path
from fedbb.errors import RecipeError
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.report.audit import audit_run
audit_run(Path(sys.argv[1]))
data = {"name": "digits", "partition": {"kind": "even", "clients": 5}}
values = {"data": data, "method": {"name": "fedbb"}}
check_recipe(make_recipe(values))
for privacy in ("masked", "bfv"):
    try:
        check_recipe(make_recipe({**values, "privacy": privacy}))
    except RecipeError as error:
        print(error)
"""


def test_without_cryptography_open_recipes_and_audits_are_read_and_private_ones_name_extras(
    tmp_path,
):
    finish(small_recipe(tmp_path, privacy="masked", rounds={"number": 1}), tmp_path / "run")
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    masked, bfv = done.stdout.splitlines()
    assert masked.endswith('cryptography, which is not installed; pip install "fedbb[private]"')
    assert bfv.endswith('tenseal, which is not installed; pip install "fedbb[private,he]"')


@pytest.mark.parametrize(
    ("quorum", "participation", "least"),
    [(0.5, 1.0, 7), (0.8, 1.0, 8), (1.0, 1.0, 10), (0.5, 0.5, 4), (1.0, 0.5, 5), (0.1, 0.3, 3)],
)
def test_the_least_cohort_is_two_thirds_of_a_round_or_its_quorum(quorum, participation, least):
    rounds = {"number": 1, "participation": participation}
    recipe = recipe_of(10, defense={"quorum": quorum}, rounds=rounds)
    assert least_cohort(recipe, 10) == least


def test_a_recipe_and_a_roster_agree_on_clients_and_terms():
    recipe = recipe_of(defense={"max_weight": 0.5, "max_norm": 2.0})
    method = check_recipe(recipe)
    roster = make_roster(5, **roster_terms(recipe, method, 5))
    agreement = agree(roster, recipe, method)
    assert agreement == agreement_of(recipe, method, 5)
    assert (agreement.bounds.max_weight, agreement.bounds.max_norm) == (0.5, 2.0)
    with pytest.raises(RunError, match=r"max_weight is 0.5 in the roster and 1.0 in the recipe"):
        agree(roster, recipe_of(), method)
    with pytest.raises(RunError, match="among 4 clients from 0, and the roster names 0, 1, 2, 3"):
        agree(roster, recipe_of(4), method)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"privacy": "bfv"}, "privacy is masked in the roster and bfv in the recipe"),
        ({"method": {"name": "fedavg"}}, "method is fedbb in the roster and fedavg in the recipe"),
        (
            {"method": {"name": "fedbb", "options": {"gamma": 0.25}}},
            r"gamma is 1.0 in the roster and 0.25 in the recipe",
        ),
        ({"local": {"lr": 0.5}}, "recipe is [0-9a-f]{64} in the roster and [0-9a-f]{64} in the"),
        ({"seed": 7}, "recipe is [0-9a-f]{64} in the roster"),
        ({"rounds": {"number": 999}}, "recipe is [0-9a-f]{64} in the roster"),
    ],
)
def test_a_recipe_that_was_not_agreed_to_is_refused_by_name(changes, told):
    enrolled = recipe_of()
    roster = make_roster(5, **roster_terms(enrolled, check_recipe(enrolled), 5))
    other = recipe_of(**changes)
    with pytest.raises(RunError, match=told):
        agree(roster, other, check_recipe(other))


def test_where_clients_run_and_what_a_run_is_called_needs_no_agreement():
    enrolled = recipe_of()
    method = check_recipe(enrolled)
    roster = make_roster(5, **roster_terms(enrolled, method, 5))
    partition = {"kind": "even", "clients": 5, "path": "/elsewhere/partition.json"}
    moved = {"name": "digits", "path": "/elsewhere", "partition": partition}
    for changes in ({"engine": "inline"}, {"name": "second"}, {"data": moved}):
        agree(roster, enrolled.model_validate({**enrolled.model_dump(), **changes}), method)


def test_every_module_that_privacy_needs_is_brought_by_the_extra_that_the_message_names():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    for modules in checks.EXTRAS.values():
        for module, extra in modules.items():
            assert any(re.match(rf"{module}\b", requirement) for requirement in extras[extra])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": {"name": "fedavg"}}, []),
        ({"method": {"name": "fedir"}}, ["the server sees each client's label counts"]),
        (
            {"evaluation": {"logit_adjustment": True}},
            ["the server sees each client's label counts"],
        ),
        ({"method": {"name": "fedavg+lda-head"}}, ["SummedEmbeddings shows the server which"]),
        (
            {
                "method": {"name": "creff"},
                "defense": {"rule": "multi-krum", "byzantine": 1},
            },
            ["HeadGradients shows the server which", "can falsify the sum of HeadGradients"],
        ),
        ({"method": {"name": "fedavg+lda-head"}, "privacy": "masked"}, []),
    ],
)
def test_notes_tell_what_an_open_run_shows_and_a_rule_does_not_cover(changes, words):
    recipe = make_recipe({"data": {"name": "digits"}, "method": {"name": "fedavg"}, **changes})
    notes = exposure_notes(recipe, check_recipe(recipe))
    assert len(notes) == len(words)
    for note, part in zip(notes, words, strict=True):
        assert part in note


BY_CLASS = {"method": {"name": "fedavg+lda-head"}}


@pytest.mark.parametrize("method", ["ccvr", "creff", "fedavg+lda-head"])
@pytest.mark.parametrize(
    "changes", [{}, {"defense": {"quorum": 0.8}}, {"rounds": {"number": 1, "participation": 0.8}}]
)
def test_sums_by_class_over_changing_groups_are_refused_by_name(method, changes):
    with pytest.raises(RecipeError, match=r"reveals a client's class counts.*reveal_class_counts"):
        check_recipe(recipe_of(method={"name": method}, **changes))


@pytest.mark.parametrize(
    ("clients", "changes"),
    [
        (5, {"defense": {"quorum": 1.0}}),
        (3, {}),
        (5, {"secure": {"reveal_class_counts": True}}),
        (5, {"privacy": "none"}),
    ],
)
def test_sums_by_class_over_one_group_or_with_consent_are_allowed(clients, changes):
    check_recipe(recipe_of(clients, **BY_CLASS, **changes))


def test_consent_to_reveal_class_counts_is_part_of_what_sites_sign():
    safe, open_ = recipe_of(), recipe_of(secure={"reveal_class_counts": True})
    method = check_recipe(safe)
    terms = [roster_terms(recipe, method, 5)["recipe"] for recipe in (safe, open_)]
    assert terms[0] != terms[1]
    roster = make_roster(5, **roster_terms(safe, method, 5))
    with pytest.raises(RunError, match="the roster was signed with other terms: recipe is"):
        agree(roster, open_, method)


def test_a_sparse_graph_is_part_of_what_sites_sign():
    complete, sparse = recipe_of(60), recipe_of(60, secure={"graph": "sparse"})
    method = check_recipe(sparse)
    roster = make_roster(60, **roster_terms(sparse, method, 60))
    assert (roster.neighbours, roster.neighbours_needed) == (14, 11)
    assert agree(roster, sparse, method).graph is not None
    with pytest.raises(RunError, match="neighbours is 14 in the roster and 0 in the recipe"):
        agree(roster, complete, method)
    fewer = recipe_of(60, secure={"graph": "sparse", "colluders": 0.0})
    with pytest.raises(RunError, match="neighbours_needed is 11 in the roster and"):
        agree(roster, fewer, method)


def test_options_of_secure_sums_need_a_private_run():
    with pytest.raises(RecipeError, match='secure needs privacy = "masked" or "bfv"'):
        check_recipe(recipe_of(privacy="none", secure={"graph": "sparse"}))


def test_recipes_without_options_of_secure_sums_are_written_as_before():
    assert "secure" not in recipe_of().model_dump(mode="json")


@pytest.mark.parametrize("sha256", ["0" * 64, "own"])
def test_the_digest_of_a_teacher_is_part_of_the_view_and_of_what_sites_sign(sha256):
    options = {"teacher": "teacher.npz", "prototypes": "teacher.npz"}
    named = {"name": "clip2fl", "options": options}
    without, bound = (
        recipe_of(method=method) for method in (named, {**named, "teacher_sha256": sha256})
    )
    assert checks.recipe_digest(without) != checks.recipe_digest(bound)
    assert checks.agreed_digest(without) != checks.agreed_digest(bound)
