"""The shape of the package, read from its own imports: they point one way."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "fedbb"

# A part is a package, a sub-package or a top module. A module belongs to the longest part that its
# name begins with; it may import its own part and those of the rows above. `fedbb` is the public
# package: it re-exports names of the rows above it.
LAYERS = (
    ("_version", "errors"),
    ("_util", "records", "rng"),
    ("data", "imbalance", "state"),
    ("partition",),
    (
        *("aggregation", "compression", "distillation", "losses", "models", "penalties"),
        *("personal", "sampling", "statistics"),
    ),
    ("classifiers",),
    ("methods",),
    ("analysis", "evaluation", "training"),
    ("simulation",),
    ("rounds",),
    ("secagg",),
    ("recipes",),
    ("paper", "runs"),
    ("inference",),
    # Runs from Python hand out models to predict with.
    ("runs.result",),
    ("runs.simulate",),
    ("flower", "nvflare"),
    ("secagg.flower",),
    # The entry points of the Flower app, which serve plain and private runs.
    ("flower.app.client", "flower.app.server"),
    ("flower.app.worker",),
    ("flower.template", "report", "trackers"),
    ("fedbb",),
    ("cli", "__main__"),
)

# (who, whom): the only imports allowed between parts of one row.
NEIGHBORS = {
    ("penalties", "models"),
    ("personal", "models"),
    ("statistics", "losses"),
    ("statistics", "models"),
    ("__main__", "cli"),
}

LIBRARY_HOMES = {
    "flwr": ("flower/", "secagg/flower/"),
    "mlflow": ("trackers/registry.py",),
    "optuna": ("runs/tuning.py",),
    "tensorboard": ("trackers/registry.py",),
    "cryptography": ("secagg/", "flower/"),
    "tenseal": ("secagg/bfv/",),
    "nvflare": ("nvflare/",),
    "typer": ("cli/",),
    "wandb": ("trackers/registry.py",),
}
FILE_HOMES = (
    # What workers share, what waits for its turn, and what the system grants.
    "simulation/pool/",
    "_util/files.py",
    "analysis/label_",
    "cli/",
    "data/",
    "flower/",
    "inference/",
    "nvflare/",
    "paper/",
    "partition/partition.py",
    "recipes/",
    "report/",
    "runs/",
    "secagg/",
    "trackers/",
)

FILE_LIBRARIES = {"fileinput", "glob", "pathlib", "shutil", "tempfile"}
FILE_CALLS = {"open", "read_bytes", "read_text", "write_bytes", "write_text"}
HEAVY = {"PIL", "matplotlib", "pydantic", "rich", "safetensors", "scipy", "sklearn", "typer"}

LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}

Check = Callable[[str, str], list[str]]


def owner(path: str) -> str:
    """Return the part that a file under src/fedbb belongs to."""
    module = path.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")
    return part(module)


def part(module: str) -> str:
    """Return the longest part that a dotted name within the package begins with."""
    words = module.split(".")
    names = [".".join(words[:length]) for length in range(len(words), 0, -1)]
    return next((name for name in names if name in LEVEL), "fedbb")


def imported(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute dotted name) for every import, wherever in the file it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node)
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
            constants = [value for value in node.args if isinstance(value, ast.Constant)]
            yield from ((node.lineno, str(constant.value)) for constant in constants[:1])


def absolute(path: str, node: ast.ImportFrom) -> str:
    """Return the module of `from module import ...`, with leading dots resolved."""
    package = ("fedbb", *PurePosixPath(path).parts[:-1])
    base = package[: len(package) - node.level + 1] if node.level else ()
    return ".".join([*base, *([node.module] if node.module else [])])


def called(node: ast.Call) -> str:
    """Return the last word of what is called, such as `open` for `path.open()`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def root(name: str) -> str:
    return name.split(".")[0]


def upward_imports(path: str, source: str) -> list[str]:
    """Name every import that the layers do not allow."""
    return [
        f"{path}:{line} imports {name}"
        for line, name in imported(path, source)
        if root(name) == "fedbb" and not may_import(owner(path), target(name))
    ]


def target(name: str) -> str:
    """Return whom a dotted name belongs to; what is no part of ours comes from the package."""
    return part(name.removeprefix("fedbb").removeprefix("."))


def may_import(who: str, whom: str) -> bool:
    return who == whom or LEVEL[whom] < LEVEL[who] or (who, whom) in NEIGHBORS


def homeless_libraries(path: str, source: str) -> list[str]:
    """Name every import of a library that only another part of the package may know."""
    return [
        f"{path}:{line} imports {name}"
        for line, name in imported(path, source)
        if not path.startswith(LIBRARY_HOMES.get(root(name), ""))
    ]


def file_access(path: str, source: str) -> list[str]:
    """Name every sign of opening files where none may be opened."""
    if path.startswith(FILE_HOMES):
        return []
    nodes = ast.walk(ast.parse(source))
    calls = [(node.lineno, called(node)) for node in nodes if isinstance(node, ast.Call)]
    return [
        *(f"{path}:{line} calls {name}" for line, name in calls if name in FILE_CALLS),
        *(
            f"{path}:{line} imports {name}"
            for line, name in imported(path, source)
            if root(name) in FILE_LIBRARIES
        ),
    ]


def sources() -> dict[str, str]:
    """Return every file of the package by its path within it."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(PACKAGE).as_posix(): file.read_text("utf-8") for file in files}


def test_every_part_of_the_package_has_its_place_in_the_layers() -> None:
    parts = {owner(path) for path in sources()}
    assert parts == set(LEVEL)
    first = {PurePosixPath(path).parts[0].removesuffix(".py") for path in sources()}
    assert first - {"__init__"} <= set(LEVEL)


@pytest.mark.parametrize("check", [upward_imports, homeless_libraries, file_access])
def test_the_package_keeps_the_rule(check: Check) -> None:
    assert [sign for path, source in sources().items() for sign in check(path, source)] == []


@pytest.mark.parametrize(
    "source",
    [
        "from fedbb.training.local import train_client",
        "import fedbb.simulation.inline",
        "from fedbb import rounds",
        "from fedbb import PNBLoss",
        "import fedbb",
        "from fedbb.aggregation.merging import average",
        "from ..methods import fedavg",
        "from .. import methods",
        "def late():\n    from fedbb.cli.main import main",
        "if TYPE_CHECKING:\n    from fedbb.runs.folder import RunFolder",
        "importlib.import_module('fedbb.report.page')",
    ],
)
def test_an_upward_or_sideways_import_is_caught(source: str) -> None:
    assert len(upward_imports("losses/made_up.py", source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("losses/made_up.py", "from fedbb.imbalance import case_weights"),
        ("losses/made_up.py", "from fedbb import records"),
        ("losses/made_up.py", "from .base import Loss"),
        ("losses/made_up.py", "from ..records import Task"),
        ("losses/made_up.py", "import torch, fedbbq"),
        ("penalties/made_up.py", "from fedbb.models.base import Outputs"),
        ("runs/made_up.py", "from fedbb._version import __version__"),
        ("__init__.py", "from fedbb.losses.pnb import PNBLoss"),
        ("flower/app/made_up.py", "from ..strategy import Strategy"),
        ("flower/made_up.py", "from fedbb.runs.folder import RunFolder"),
        ("cli/made_up.py", "from fedbb.flower.admin.local import start"),
    ],
)
def test_an_import_from_below_or_of_the_same_package_passes(path: str, source: str) -> None:
    assert upward_imports(path, source) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("penalties/made_up.py", "from fedbb.losses.base import Loss"),
        ("models/made_up.py", "from fedbb.penalties.base import Step"),
        ("data/made_up.py", "from fedbb.partition.partition import Partition"),
        ("data/made_up.py", "from fedbb.imbalance import count_labels"),
        ("records.py", "from fedbb.state import mix"),
        ("simulation/inline.py", "from fedbb.flower.strategy import x"),
        ("flower/made_up.py", "from fedbb.report.page import write"),
    ],
)
def test_a_neighbor_is_refused_unless_the_table_names_it(path: str, source: str) -> None:
    assert len(upward_imports(path, source)) == 1


@pytest.mark.parametrize(
    ("home", "source"),
    [
        ("flower/made_up.py", "from flwr.common import Message"),
        ("cli/made_up.py", "import typer"),
        ("trackers/registry.py", "from mlflow import MlflowClient"),
    ],
)
def test_a_library_is_known_only_in_its_home(home: str, source: str) -> None:
    assert homeless_libraries(home, source) == []
    assert len(homeless_libraries("simulation/inline.py", source)) == 1
    assert len(homeless_libraries("report/page.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    ["from pathlib import Path", "open('x')", "folder.open('w')", "import shutil", "p.read_text()"],
)
def test_file_access_is_caught_outside_its_homes(source: str) -> None:
    assert len(file_access("training/made_up.py", source)) == 1
    assert len(file_access("partition/registry.py", source)) == 1
    assert (
        file_access("runs/made_up.py", source)
        == file_access("partition/partition.py", source)
        == []
    )


def test_importing_the_package_loads_nothing_heavier_than_torch_and_numpy() -> None:
    program = "import fedbb, json, sys; print(json.dumps(list(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = {root(name) for name in json.loads(answer.stdout)}
    assert "fedbb" in loaded
    assert loaded & HEAVY == set()
