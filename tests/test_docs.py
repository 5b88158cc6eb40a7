"""The pages say what the program does: their tables, links, recipes and examples are held to it."""

import json
import re
import shlex
import sys
import tomllib
from dataclasses import MISSING, fields, is_dataclass
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import BaseModel
from sklearn.datasets import load_digits
from torch.utils.data import Subset, TensorDataset

from fedbb.data.examples import tail_sizes
from fedbb.data.label_policy import Policy
from fedbb.data.registry import CATALOGUE, load_dataset
from fedbb.data.sets.chexpert import CheXpertOptions
from fedbb.data.sets.dicom import DicomOptions
from fedbb.data.sets.embedded import MosaicOptions
from fedbb.data.sets.features import FeatureOptions
from fedbb.data.sets.folder import FolderOptions
from fedbb.data.sets.hugging_face import HuggingFaceOptions
from fedbb.data.sets.medmnist import MedMnistOptions
from fedbb.data.sets.nih_cxr14 import NihOptions
from fedbb.data.sets.npz import NpzOptions
from fedbb.data.sets.table import TableOptions
from fedbb.data.sets.tiny_imagenet import TinyImageNetOptions
from fedbb.errors import RecipeError
from fedbb.imbalance import READINGS
from fedbb.losses.class_balanced import Form
from fedbb.losses.logit_calibrated import Denominator
from fedbb.losses.pnb import ClassFactor
from fedbb.methods import BALANCING, BASES, METHODS, build_method, hyper_parameters
from fedbb.models.registry import MODELS, build_model
from fedbb.partition.registry import KINDS
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import EvaluationSpec, Recipe, run_name
from fedbb.records import Task
from fedbb.runs.federation import prepare
from fedbb.runs.folder import FILES
from fedbb.training.config import OptimizerName, Precision, ScheduleKind
from helpers.commands import fedbb
from helpers.hugging_face import png, save_split

ROOT = Path(__file__).parents[1]
RECIPES = (ROOT / "docs" / "recipes.md").read_text("utf-8")
DATA = (ROOT / "docs" / "data.md").read_text("utf-8")
NETWORKS = (ROOT / "docs" / "models.md").read_text("utf-8")
TEXTS = {
    "README.md": (ROOT / "README.md").read_text("utf-8"),
    "recipes": RECIPES,
    "data": DATA,
    "models": NETWORKS,
}
GENERATED = {"build", "demo", "dist", "runs"}
OPTIONS = {
    "digit-mosaic": MosaicOptions,
    "tiny-imagenet": TinyImageNetOptions,
    "nih-cxr14": NihOptions,
    "chexpert": CheXpertOptions,
    "npz": NpzOptions,
    "folder": FolderOptions,
    "medmnist": MedMnistOptions,
    "features": FeatureOptions,
    "hf": HuggingFaceOptions,
    "table": TableOptions,
}
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
METRICS = get_args(get_args(EvaluationSpec.model_fields["metric"].annotation)[0])
ANYTHING = "…"


def rows(text: str, first: str) -> list[list[str]]:
    """Return the rows of all tables whose first heading is this."""
    tables = re.findall(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def default(cell: str):
    """Return the value in a table's column of defaults; a dash stands for none."""
    if cell.startswith("–"):
        return None
    return cell if cell == "required" else tomllib.loads(f"value = {code(cell)[0]}")["value"]


def schema(section: type[BaseModel] = Recipe, prefix: str = ""):
    """Yield each key of a recipe with its default."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from schema(kind, f"{prefix}{name}.")
        elif is_dataclass(kind):
            yield from record_keys(kind, f"{prefix}{name}.")
        elif field.is_required():
            yield prefix + name, "required"
        else:
            yield prefix + name, field.get_default(call_default_factory=True)


def record_keys(kind: type, prefix: str):
    """Yield each key of a section that is a record, with the keys of records in it."""
    for name, value in options(kind):
        if is_dataclass(value):
            yield from record_keys(type(value), f"{prefix}{name}.")
        else:
            yield prefix + name, value


def options(kind: type):
    """Yield each option of a loader with its default, tuples as the lists that TOML knows."""
    for field in fields(kind):
        value = field.default
        if value is MISSING:
            assert field.default_factory is not MISSING
            value = field.default_factory()
        yield field.name, list(value) if isinstance(value, tuple) else value


def whole(content: str) -> dict:
    """Return a recipe's values; a part of a recipe is put into a small one."""
    values = tomllib.loads(content)
    if "method" in values:
        return values
    data = {"name": "digits", "partition": {"kind": "even", "clients": 4}}
    small: dict = {"data": data, "method": {"name": "fedavg"}}
    for key, value in values.items():
        small[key] = small.get(key, {}) | value if isinstance(value, dict) else value
    return small


def test_the_tables_name_every_key_of_a_recipe_with_its_default():
    told = {code(row[0])[0]: default(row[3]) for row in rows(RECIPES, "key") if len(row) == 4}
    assert told == dict(schema())


def test_the_tables_name_every_option_of_the_methods_with_its_default_and_who_takes_it():
    told = [row for row in rows(RECIPES, "key") if len(row) == 5]
    for method in METHODS:
        mine = {code(row[0])[0]: default(row[3]) for row in told if method in code(row[4])}
        known = hyper_parameters(method).items()
        assert mine == {f"method.options.{name}": value for name, value in known}


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("data.partition.kind", [*KINDS, "file"]),
        ("model.name", MODELS),
        ("method.name", METHODS),
        ("evaluation.metric", METRICS),
        ("local.optimizer", get_args(OptimizerName)),
        ("local.precision", get_args(Precision)),
        ("local.schedule.kind", get_args(ScheduleKind)),
        ("method.options.class_factor", get_args(ClassFactor)),
        ("method.options.denominator", get_args(Denominator)),
        ("method.options.form", get_args(Form)),
        ("engine", get_args(Recipe.model_fields["engine"].annotation)),
        ("method.options.reading", READINGS),
    ],
)
def test_a_key_with_a_few_values_names_them_all(key, choices):
    (allowed,) = {row[2] for row in rows(RECIPES, "key") if code(row[0]) == [key]}
    assert sorted(re.findall(r'`"(.*?)"`', allowed)) == sorted(choices)


@pytest.mark.parametrize("page", TEXTS)
def test_every_key_that_a_page_mentions_exists(page):
    sections = "data|model|method|local|rounds|evaluation"
    mentioned = set(re.findall(rf"`((?:{sections})\.[\w.]+)`", TEXTS[page])) - set(FILES)
    known = {key for key, _ in schema()} | {"data.partition", "local.schedule"}
    known |= {f"method.options.{name}" for method in METHODS for name in hyper_parameters(method)}
    assert mentioned <= known


def test_the_table_of_networks_tells_how_large_each_is():
    told = {code(row[0])[0]: row[1:] for row in rows(RECIPES, "network")}
    assert sorted(told) == sorted(MODELS)
    for name, sizes in told.items():
        models = [
            build_model(name, 10, (3, 32, 32), projection=projection)
            for projection in (False, True)
        ]
        assert sizes == [f"{sum(p.numel() for p in model.parameters()):,}" for model in models]


UNSUITED = [
    {"data": {"name": "digit-mosaic"}, "method": {"name": "fedprox+fedlc"}},
    {"method": {"name": "focal", "options": {"alpha": 0.25}}},
    {"model": {"projection": False}, "method": {"name": "moon"}},
    {"data": {"name": "digits", "partition": {"kind": "even", "clients": 2, "min_samples": 5}}},
    {"engine": "central", "data": {"name": "digits", "partition": {"kind": "even", "clients": 2}}},
    {"local": {"nesterov": True, "momentum": 0.0}},
    {"local": {"betas": [0.5, 0.9]}},
    {"local": {"optimizer": "adam"}, "method": {"name": "fednova"}},
    {"rounds": {"patience": 3}},
    {"method": {"name": "fedopt"}},
    {
        "method": {"name": "fedopt-sca"},
        "privacy": "masked",
        "dp": {"clip": 1.0, "noise": 1.0},
    },
    {"method": {"name": "fedadam"}, "rounds": {"topology": "ring"}},
    {"rounds": {"topology": "random"}},
    {"method": {"name": "fedlc+moon"}},
]


def test_parts_that_do_not_suit_are_refused_in_the_words_of_the_page():
    section = RECIPES.partition("## Incompatible settings")[2].partition("\n## ")[0]
    told = [code(row[1])[0] for row in rows(section, "what")]
    small = {"data": {"name": "digits"}, "method": {"name": "fedavg"}}
    for message, parts in zip(told, UNSUITED, strict=True):
        words = message.replace("FedLC is", "FedProx+FedLC is")
        with pytest.raises(RecipeError, match=re.escape(words)):
            check_recipe(make_recipe({**small, **parts}))


def test_the_pairs_of_methods_that_do_not_work_are_those_of_the_page():
    section = RECIPES.partition("## Combining two methods")[2]
    one, two = (item.partition("\n\n")[0] for item in section.split("\n- ")[1:3])
    weighers, refused = (re.findall("`([^`]+)`", part) for part in one.split("refused before"))
    multiclass_only = re.findall("`([^`]+)`", two)
    for base, balancing in product(BASES, BALANCING):
        if base in weighers and balancing in refused:
            with pytest.raises(RecipeError, match="weighs the models of clients by itself"):
                build_method(f"{base}+{balancing}", {})
        else:
            suits = not {base, balancing} & set(multiclass_only)
            assert build_method(f"{base}+{balancing}", {}).supports(Task.MULTILABEL) == suits


def test_the_table_of_a_run_folder_names_every_file():
    assert sorted(code(row[0])[0] for row in rows(RECIPES, "file")) == sorted(FILES)


def test_the_table_of_data_sets_names_them_all_with_their_sizes():
    told = {code(row[0])[0]: row for row in rows(DATA, "name")}
    assert list(told) == list(CATALOGUE)
    for name, entry in CATALOGUE.items():
        assert told[name][1].replace("-", "").startswith(entry.task or "either")
        if entry.origin == "embedded":
            dataset = load_dataset(name)
            assert told[name][3:5] == [f"{len(dataset.train):,}", f"{len(dataset.test):,}"]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_a_loader_is_told_with_its_default(name):
    told = {code(row[0])[0]: default(row[3]) for row in rows(DATA, f"option of `{name}`")}
    assert told == dict(options(OPTIONS[name]))


def test_the_options_of_dicom_that_differ_from_those_of_a_table_are_told():
    told = {code(row[0])[0]: default(row[3]) for row in rows(DATA, "option of `dicom`")}
    of_table = dict(options(TableOptions))
    own = {key: value for key, value in options(DicomOptions) if of_table.get(key) != value}
    assert told == own


def test_every_kind_of_partition_is_told_with_what_it_takes():
    told = {code(row[0])[0]: (code(row[1]), code(row[2])) for row in rows(DATA, "kind")}
    known = {name: (list(kind.needs), list(kind.takes)) for name, kind in KINDS.items()}
    assert told == known | {"file": (["path"], [])}


def test_every_policy_for_unknown_labels_is_told():
    assert sorted(code(row[0])[0] for row in rows(DATA, "policy")) == sorted(get_args(Policy))


def test_the_sizes_of_a_long_tail_are_as_told():
    sizes = tail_sizes(np.full(10, 5000), 0.1).tolist()
    assert f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]} images" in DATA


@pytest.mark.parametrize("page", TEXTS)
def test_every_recipe_of_a_page_can_be_read(page):
    recipes = [content for language, _, content in BLOCK.findall(TEXTS[page]) if language == "toml"]
    assert recipes
    for content in recipes:
        check_recipe(make_recipe(whole(content), f"recipe in {page}"))


def pages() -> list[Path]:
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in GENERATED]
    inner = [page for folder in folders if folder.name[0] != "." for page in folder.rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *inner])


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page can be linked by."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page):
    text = BLOCK.sub("", page.read_text("utf-8"))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for link in links:
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link} names no heading"


def walk(text: str, names: dict, monkeypatch) -> None:
    """Do what a page shows, from top to bottom, in the current folder."""
    for language, name, content in BLOCK.findall(text):
        if name:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(content, "utf-8")
        match language:
            case "toml":
                recipe = make_recipe(whole(content))
                if CATALOGUE[recipe.data.name].origin != "download":
                    assert prepare(recipe).partition.clients
            case "python" if not name:
                exec(content, names)
            case "console":
                check_console(content, monkeypatch)


def check_console(content: str, monkeypatch) -> None:
    """Give each command that follows a $ and compare what it says; … stands for anything."""
    shown = re.findall(r"^\$ fedbb ((?:.*\\\n> )*.*)\n((?:(?!\$ ).*\n)*)", content, re.M)
    assert len(shown) == content.count("$ ")
    for command, expected in shown:
        words = shlex.split(command.replace("\\\n> ", ""))
        result = fedbb(*words, monkeypatch=monkeypatch)
        pattern = re.escape(expected).replace(ANYTHING, ".*")
        assert re.fullmatch(pattern, result.out + result.err, re.S), (command, result)
        assert result.code == (2 if result.err else 0)


def field_names(value, known: set[str], prefix: str = ""):
    """Yield where the values of parsed JSON stand, no further down than the page goes."""
    if isinstance(value, list) and prefix not in known:
        value, prefix = value[0], f"{prefix}[]"
    if not isinstance(value, dict) or prefix in known:
        yield prefix
        return
    for key, inner in value.items():
        name = "SET" if prefix == "scores" else key
        yield from field_names(inner, known, f"{prefix}.{name}".lstrip("."))


def test_what_the_page_on_recipes_shows_is_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = (content for _, name, content in BLOCK.findall(RECIPES) if name == "digits.toml")
    folder = Path("runs", run_name(make_recipe(tomllib.loads(example))))
    assert folder.name.startswith("digits-fedbb-seed0-")
    names = {"folder": folder, "images": torch.zeros(2, 1, 8, 8)}
    walk(RECIPES.replace("digits-fedbb-seed0-…", folder.name), names, monkeypatch)
    for file in ("rounds.jsonl", "federation.json", "summary.json"):
        text = (folder / file).read_text("utf-8")
        value = json.loads(text.splitlines()[0] if file.endswith("l") else text)
        section = RECIPES.partition(f"### `{file}`")[2].partition("\n#")[0]
        known = {code(row[0])[0] for row in rows(section, "field")}
        assert set(field_names(value, known)) == known


def test_what_the_page_on_networks_shows_is_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    walk(NETWORKS, {}, monkeypatch)


def test_what_the_page_on_data_shows_is_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in stand_ins():
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(tmp_path)
    walk(DATA, {}, monkeypatch)


KINDS_OF_DATA = {
    "class folders": ("from_folder(", 'name = "folder"'),
    "MedMNIST": ('load_dataset("medmnist", path="pneumoniamnist.npz"', "pneumoniamnist.npz"),
    "ChestMNIST": ('load_dataset("medmnist", path="chestmnist.npz"', "chestmnist.npz"),
    "CSV and images": ('load_dataset("table"', 'name = "table"'),
    "DICOM": ('load_dataset("dicom"', 'name = "dicom"'),
    "Hugging Face": ("from_hf(", 'name = "hf"'),
    "CSV of features": ("from_frame(", "trial.csv"),
    "parquet of features": ("trial.parquet", "trial.parquet"),
    "npz of features": ("trial.npz", "trial.npz"),
    "any channels": ("(40, 5, 16, 16)", "satellite.npz"),
    "signals": ("(200, 2, 50)", "signals.npz"),
    "volumes": ("(60, 1, 8, 8, 8)", "volumes.npz"),
    "token ids": ("(60, 12)", "reports.npz"),
    "torch": ("from_torch(", "cifar100.npz"),
    "arrays": ("from_arrays(", "skin.npz"),
}
"""What shows in Python and in a recipe how a kind of data is read."""


@pytest.mark.parametrize("kind", KINDS_OF_DATA)
def test_every_kind_of_data_is_read_in_ten_lines_in_python_and_in_a_recipe(kind):
    blocks = [
        (language, [line for line in content.splitlines() if line])
        for language, _, content in BLOCK.findall(DATA)
    ]
    for language, call in zip(("python", "toml"), KINDS_OF_DATA[kind], strict=True):
        lengths = [
            len(lines)
            for spoken, lines in blocks
            if spoken == language and any(call in line for line in lines)
        ]
        assert lengths, (kind, language)
        assert min(lengths) <= 10


def test_what_the_page_on_methods_shows_is_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "methods.md").read_text("utf-8")
    names: dict = {}
    walk(page, names, monkeypatch)
    assert names["results"]
    weights = [client["weight"] for client in names["result"].history[0].clients]
    roots = np.sqrt(names["clients"].sizes)
    assert weights == pytest.approx(roots / roots.sum())


def test_what_the_page_on_trained_models_shows_is_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "trained-models.md").read_text("utf-8")
    walk(page, {}, monkeypatch)
    assert len(Path("predictions.csv").read_text("utf-8").splitlines()) == 1 + 359


def test_what_the_page_on_tuning_shows_is_what_happens(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    walk((ROOT / "docs" / "tuning.md").read_text("utf-8"), names, monkeypatch)
    assert len(names["tuned"].trials) == 3
    files = {
        code(row[0])[0].strip("/")
        for row in rows((ROOT / "docs" / "tuning.md").read_text("utf-8"), "file")
    }
    assert files == {path.name for path in Path("tuning/digits").iterdir() if path.name[0] != "."}


@pytest.mark.slow
def test_what_the_page_on_personal_models_shows_is_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk((ROOT / "docs" / "personalization.md").read_text("utf-8"), {}, monkeypatch)
    assert Path("runs", "ditto", "final.safetensors").exists()


@pytest.mark.slow
def test_what_the_page_on_trackers_shows_in_python_is_what_happens(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "digits.toml"
    (content,) = (
        text for _, name, text in BLOCK.findall(TEXTS["README.md"]) if name == recipe.name
    )
    recipe.write_text(content, "utf-8")
    words = ("--set", "rounds.number=1", "--workers", "1", "--quiet")
    assert fedbb("run", recipe, *words, monkeypatch=monkeypatch).code == 0
    walk((ROOT / "docs" / "trackers.md").read_text("utf-8"), {}, monkeypatch)
    assert list(Path("logs").rglob("events.out.tfevents*"))


def test_every_recipe_that_a_guide_names_is_one_that_a_stranger_has():
    """Fails if a page uses a recipe file that neither it nor the README shows."""
    shown = re.compile(r"^```\w+ (\S+\.toml)$", re.M)
    everywhere = set(shown.findall(TEXTS["README.md"]))
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text("utf-8")
        for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S):
            for name in re.findall(r"fedbb (?:run|tune|sweep) ([\w-]+\.toml)", block):
                assert name in shown.findall(text) or name in everywhere, (page.name, name)
                assert name in shown.findall(text) or "README.md" in text, (page.name, name)


class Rows(list):
    """Rows, and facts about them."""

    def __init__(self, rows, **facts) -> None:
        super().__init__(rows)
        self.__dict__.update(facts)


class Features(dict):
    """Features by column, and as plain values."""

    def __init__(self, plain, **objects) -> None:
        super().__init__(objects)
        self.plain = plain

    def to_dict(self):
        return self.plain


class Splits(dict):
    """Splits that can be saved in the format of Hugging Face's library."""

    def save_to_disk(self, folder):
        for name, split in self.items():
            columns = {key: [row[key] for row in split] for key in split[0]}
            columns["img"] = [{"bytes": png(np.asarray(image))} for image in columns["img"]]
            save_split(Path(folder, name), columns, split.features.to_dict())
        Path(folder, "dataset_dict.json").write_text(json.dumps({"splits": list(self)}), "utf-8")


def stand_ins() -> list[ModuleType]:
    """Return modules that give small data sets in the form of torchvision and Hugging Face."""
    images = [Image.fromarray(np.full((32, 32, 3), 40 * number, np.uint8)) for number in range(6)]
    names = ["apple", "bear"]
    pairs = Rows(((image, place % 2) for place, image in enumerate(images)), classes=names)
    facts = {"img": {"_type": "Image"}, "fine_label": {"names": names, "_type": "ClassLabel"}}
    mappings = Rows(
        (
            {"img": image, "fine_label": place % 2, "coarse_label": place % 3}
            for place, image in enumerate(images)
        ),
        features=Features(facts, fine_label=SimpleNamespace(names=names)),
    )
    torchvision, hugging_face = ModuleType("torchvision.datasets"), ModuleType("datasets")
    torchvision.CIFAR100 = lambda root, train, download: pairs
    hugging_face.load_dataset = lambda name: Splits(train=mappings, test=mappings)
    return [ModuleType("torchvision"), torchvision, hugging_face]


def test_every_class_of_the_glossary_exists():
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    defined = set(re.findall(r"^class (\w+)", sources, re.M))
    named = set(re.findall(r"`([A-Z][A-Za-z]+[a-z])`", page))
    assert len(named) > 15
    assert named <= defined


def test_the_federation_of_the_readme_runs_as_it_stands():
    blocks = [
        code for language, _, code in BLOCK.findall(TEXTS["README.md"]) if language == "python"
    ]
    (example,) = [code for code in blocks if "fedbb.simulate(" in code]
    x, y = (torch.tensor(array) for array in load_digits(return_X_y=True))
    rows = TensorDataset((x / 16).float(), y)
    parts = [Subset(rows, range(1400)), Subset(rows, range(1400, len(rows)))]
    names = dict(zip(("train_set", "test_set"), parts, strict=True))
    exec(example, names)
    result = names["result"]
    assert len(result.history) == 20
    assert result.final["accuracy"] > 0.5
    inputs = torch.stack([parts[1][place][0] for place in range(len(parts[1]))])
    guesses = result.model(inputs).argmax(dim=1)
    assert (guesses == y[1400:]).double().mean().item() == pytest.approx(result.final["accuracy"])


PRIVATE_WORDS = re.compile(r"\b(told|untold|so many|whoever|whosoever)\b", re.I)


def test_prose_code_and_messages_use_none_of_the_old_private_words():
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts
        if path.name != "CHANGELOG.md"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if PRIVATE_WORDS.search(line)
    ]
    assert lines == []
