import json
import re
import tomllib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RecipeError
from fedbb.recipes.reader import differences, make_recipe, read_recipe
from fedbb.training.config import LRSchedule

SMALL = """
seed = 3
[data]
name = "digits"
partition = { kind = "even", clients = 4 }
[method]
name = "fedbb"
options = { beta = 0.99 }
[local]
lr = 0.05
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_a_recipe_reads_with_defaults_for_what_it_leaves_out(recipe_file):
    recipe = read_recipe(recipe_file)
    assert recipe.local.lr == 0.05
    assert recipe.local.momentum == 0.9
    assert recipe.data.partition.clients == 4
    assert recipe.method.options == {"beta": 0.99}


def test_the_resolved_recipe_reads_back_as_itself(recipe_file, tmp_path):
    recipe = read_recipe(recipe_file)
    copy = tmp_path / "recipe.json"
    copy.write_text(recipe.model_dump_json())
    assert read_recipe(copy) == recipe


def test_settings_replace_values_and_are_read_as_toml(recipe_file):
    settings = ["local.lr=0.02", "model.name=resnet11", "method.options.mu='unit'", "seed=7"]
    recipe = read_recipe(recipe_file, settings)
    assert (recipe.local.lr, recipe.model.name, recipe.seed) == (0.02, "resnet11", 7)
    assert recipe.method.options == {"beta": 0.99, "mu": "unit"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("local.rl=0.1", "local.rl is unknown"),
        ("locl.lr=0.1", "locl is unknown; did you mean local?"),
        ("data.partition.cleints=3", "did you mean clients?"),
        ("local.lr=0", "local.lr = 0 is refused"),
        ("local.lr=fast", "local.lr = 'fast' is refused"),
        ("local.epochs=0", "local.epochs = 0 is refused"),
        ("local.epochs=1.5", "local.epochs = 1.5 is refused"),
        ("rounds.participation=1.5", "rounds.participation = 1.5 is refused"),
        ("rounds.participation=0", "rounds.participation = 0 is refused"),
        (f"data.partition.clients={'9' * 400}", "less than or equal to 9007199254740992"),
        ("data.partition.concentration=0", "data.partition.concentration = 0 is refused"),
        ("data.partition.concentration=-1", "data.partition.concentration = -1 is refused"),
        ("data.long_tail=2", "data.long_tail = 2 is refused"),
        ("data.validation=1", "data.validation = 1 is refused"),
        ("local.momentum=1", "local.momentum = 1 is refused"),
        ("local.optimizer=rms", "local.optimizer = 'rms' is refused"),
        ("local.betas=[0.9]", "local.betas.2 is missing"),
        ("local.betas=[0.9, 1.0]", "local.betas.2 = 1.0 is refused"),
        ("local.schedule=linear", "local.schedule.kind = 'linear' is refused"),
        ("local.schedule=step", "needs either step_size or milestones"),
        ("local.schedule={kind='cosine', wormup=2}", "wormup is unknown; did you mean warmup?"),
        ("local.schedule.milestones=[0]", "local.schedule.milestones.1 = 0 is refused"),
        ("local.schedule=3", "local.schedule = 3 is refused"),
        ("local.clip=0", "local.clip = 0 is refused"),
        ("local.accumulate=0", "local.accumulate = 0 is refused"),
        ("rounds.patience=0", "rounds.patience = 0 is refused"),
        ("rounds.target=1.5", "rounds.target = 1.5 is refused"),
        ("engine=rocket", "engine = 'rocket' is refused"),
        ("seed=-1", "seed = -1 is refused"),
        ("name='../up'", "name = '../up' is refused"),
        ("name='.'", "name = '.' is refused"),
        ("name='..'", "name = '..' is refused"),
        ("name='...'", "name = '...' is refused"),
        ("name='/etc'", "name = '/etc' is refused"),
        ("name='up/x'", "name = 'up/x' is refused"),
        ("name='up\\x'", "string should match pattern"),
        ("name=''", "name = '' is refused"),
        (f"name='{'x' * 300}'", "at most 240 characters"),
        ("evaluation.metric=luck", "evaluation.metric = 'luck' is refused"),
        ("lr", "must have the form key=value"),
        ("=3", "must have the form key=value"),
        ("seed.inner=3", "seed is a value, not a table"),
    ],
)
def test_a_bad_setting_is_refused_by_name(recipe_file, setting, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe_file, [setting])


def test_a_schedule_is_a_table_or_its_kind_alone(recipe_file):
    short, long = ("local.schedule=cosine", "local.schedule={kind='cosine'}")
    assert read_recipe(recipe_file, [short]) == read_recipe(recipe_file, [long])
    steps = read_recipe(recipe_file, ["local.schedule={kind='step', milestones=[2, 5]}"])
    assert steps.local.lr_schedule == LRSchedule("step", milestones=(2, 5))


def test_missing_parts_are_named(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text("seed = 1\n")
    with pytest.raises(RecipeError, match=r"empty\.toml: data is missing; method is missing"):
        read_recipe(path)


@pytest.mark.parametrize("text", ["a = ", "[data", "\x00"])
def test_text_that_is_no_toml_is_refused_with_its_place(tmp_path, text):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=r"broken\.toml is not valid"):
        read_recipe(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_recipe(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("text", ["[recipe]\nrounds = { number = 3 }", '[[axis]]\nname = "rate"'])
def test_a_grid_is_refused_in_one_message(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(f'title = "Rates"\n{text}\n')
    with pytest.raises(RecipeError) as caught:
        read_recipe(path)
    assert str(caught.value) == (
        f"{path} is a grid, not a recipe: `fedbb sweep {path}` runs its cells; a recipe has the "
        "sections data and method"
    )


def test_json_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1, 2]")
    with pytest.raises(RecipeError, match="must be a table"):
        read_recipe(path)


def test_differences_name_every_changed_setting(recipe_file):
    before = read_recipe(recipe_file)
    after = read_recipe(recipe_file, ["local.lr=0.1", "method.options.tau=2.0"])
    assert differences(before, after) == [
        "local.lr: 0.05 before, 0.1 now",
        "method.options.tau: None before, 2.0 now",
    ]
    assert differences(before, before) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
keys = st.sampled_from(["data", "method", "local", "rounds", "seed", "name", "model", "x"])


@given(st.dictionaries(keys, values))
def test_no_nonsense_raises_anything_but_a_recipe_error(nonsense):
    with suppress(RecipeError):
        make_recipe(nonsense)


@pytest.mark.parametrize("damaged", [3, None, "python", [1]])
def test_what_is_no_table_is_a_recipe_error(damaged):
    with pytest.raises(RecipeError, match="recipe of a run"):
        make_recipe(damaged, "recipe of a run")


def cut_and_join(text, first, second, insert):
    """Return the text with what lies between two places replaced."""
    begin, end = sorted((first % (len(text) + 1), second % (len(text) + 1)))
    return text[:begin] + insert + text[end:]


SMALL_JSON = json.dumps(tomllib.loads(SMALL))
signs = ["[", "]]", "{", "}", '"', "=", "1e999", "\x00", "\n"]
words = st.text(max_size=8) | st.sampled_from(signs)
places = st.integers(0, 1000)


@pytest.mark.parametrize("name", ["recipe.toml", "recipe.json"])
@given(st.data())
def test_no_text_raises_anything_but_a_recipe_error(tmp_path_factory, name, data):
    valid = SMALL if name.endswith("toml") else SMALL_JSON
    changed = st.builds(cut_and_join, st.just(valid), places, places, words)
    text = data.draw(st.text(max_size=60) | changed)
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_text(text, encoding="utf-8")
    with suppress(RecipeError):
        read_recipe(path)


def test_most_texts_that_are_almost_recipes_are_refused(tmp_path):
    """The law above means something: readers do get far with such texts, and then refuse."""
    path, refused = tmp_path / "recipe.toml", []
    for place in range(len(SMALL)):
        path.write_text(cut_and_join(SMALL, place, place + 3, "]]"))
        with suppress(RecipeError):
            read_recipe(path)
            continue
        refused.append(place)
    assert len(refused) > 0.9 * len(SMALL)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_recipe_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "recipe.toml"
    path.write_bytes(content)
    with suppress(RecipeError):
        read_recipe(path)
