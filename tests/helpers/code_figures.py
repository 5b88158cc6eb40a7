"""Figures of the package's source, as the table in ARCHITECTURE.md has them.

    PYTHONPATH=src:tests python -m helpers.code_figures [-v]

A module with a single importer could be part of that importer. Entries of a registry, entry points
of programs and what a package re-exports have one importer by nature and are counted apart.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).parents[2] / "src" / "fedbb"

REGISTRIES = ("data.registry", "methods.registry", "models.registry")
ENTRY_POINTS = (
    "cli.main",
    "cli.run",
    "flower.admin.superlink",
    "flower.admin.supernode",
    "flower.app.server",
    "flower.app.worker",
)
"""Modules that a program is started from, or that the command line loads by name."""


def module_name(path: Path) -> str:
    """Return the dotted name of a file within the package; the package itself is empty."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that a file imports or names as a text, such as "-m"."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(PACKAGE.parent).parts[:-1]
            start = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*start, *([node.module] if node.module else [])])
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value.split(":")[0]]
        inside = (name.removeprefix("fedbb.") for name in names if name.startswith("fedbb."))
        yield from (name for name in inside if name in known)


def docstring_lines(tree: ast.Module) -> int:
    """Return the number of lines of docstrings."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, holders) and node.body]
    texts = [
        node
        for node in first
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return sum(node.end_lineno - node.lineno + 1 for node in texts)


def import_lines(tree: ast.Module) -> int:
    """Return the number of lines of import statements."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum(node.end_lineno - node.lineno + 1 for node in nodes)


def single_importers(trees: dict[Path, ast.Module]) -> dict[str, str]:
    """Return the modules that one other module imports, with that module."""
    known = {module_name(path): path for path in trees if path.name != "__init__.py"}
    importers: dict[str, set[str]] = {name: set() for name in known}
    for path, tree in trees.items():
        for name in imported_modules(path, tree, known):
            importers[name] |= {module_name(path)} - {name}
    return {name: next(iter(found)) for name, found in importers.items() if len(found) == 1}


def by_nature(name: str, importer: str) -> bool:
    """Return whether a module has one importer by nature."""
    is_package = (PACKAGE / importer.replace(".", "/") / "__init__.py").is_file()
    return name in ENTRY_POINTS or importer in REGISTRIES or is_package


def main() -> None:
    """Print the figures, and with -v the modules with a single importer."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    lengths = [len(path.read_text("utf-8").splitlines()) for path in trees]
    imports = sum(import_lines(tree) for tree in trees.values())
    single = single_importers(trees)
    others = {name: who for name, who in single.items() if not by_nature(name, who)}
    print(f"files {len(trees)}, median lines {median(lengths):g}")
    print(f"lines {sum(lengths):,}, docstrings {sum(map(docstring_lines, trees.values())):,}")
    print(f"imports {100 * imports / sum(lengths):.1f} % of lines")
    print(f"modules with a single importer {len(single)}, by nature {len(single) - len(others)}")
    if "-v" in sys.argv:
        print("  " + "\n  ".join(f"{name} ← {who}" for name, who in others.items()))


if __name__ == "__main__":
    main()
