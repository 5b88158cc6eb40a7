"""`fedbb methods`: every method in a line, and the parts, costs and options of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedbb._util.names import nearest
from fedbb._util.text import counted
from fedbb.cli.common import Json, Quiet, print_json
from fedbb.errors import RecipeError
from fedbb.methods import METHODS, Method, build_method, hyper_parameters
from fedbb.methods.heads import HEADS
from fedbb.methods.registry import check_ambiguous
from fedbb.penalties.base import Needs
from fedbb.records import Task, Visibility

GROUPS = {
    "Local training and merging": ("bases",),
    "FedBB, its parts, and losses for imbalanced classes": ("balancing",),
    "Further methods against class imbalance": (
        *("imbalance", "climb", "creff", "ccvr", "clip2fl", "isfl"),
    ),
    "Balanced classifiers, added to a method as in fedavg+lda-head": ("heads",),
    "Server optimizers, control variates, dynamic regularization": ("server", "scaffold", "feddyn"),
    "Models of each client's own": ("personal", "pfedla", "ripfl"),
    "Compressed changes": ("compression",),
    "Losses for wrong labels and for uncertainty": ("noisy_labels",),
    "Learning from outputs on public inputs": ("distillation", "rhfl"),
    "Reconstructions of systems whose formulas are not public": ("fedfusion",),
}
"""The groups: title, and the modules of `fedbb.methods` that have their builders."""

SEEN = {
    Visibility.SUMS: "sums over clients",
    Visibility.FIGURES: "figures of single clients",
    Visibility.UPDATES: "models of single clients",
}


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method in full.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the methods a recipe may name, or show one with its parts, costs and options."""
    if name is not None:
        check_ambiguous(name)
    if name is not None and "+" not in name and name not in {**METHODS, **HEADS}:
        raise RecipeError(f"method {name!r} is unknown{nearest(name, METHODS)}")
    rows = [describe_method(each) for each in (METHODS if name is None else (name,))]
    if as_json:
        print_json(rows if name is None else rows[0])
    elif not quiet:
        console = Console(highlight=False)
        if name is None:
            _print_list(console, rows)
        else:
            console.print(Text(name, style="bold"))
            console.print(Padding(Text("\n".join(_lines(rows[0]))), (0, 0, 0, 4)))


def _print_list(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print a line for each method and each balanced classifier, by group."""
    lines = [(row["group"], row["name"], row["about"]) for row in rows]
    lines += [(_group(add.__module__), f"+{head}", _about(add)) for head, add in HEADS.items()]
    width = max(len(name) for _, name, _ in lines) + 2
    for title in dict.fromkeys((*GROUPS, *(group for group, _, _ in lines))):
        console.print(Text(title, style="bold"))
        for group, name, about in lines:
            if group == title:
                first = about.partition("\n")[0]
                console.print(Text(f"  {name:<{width}}{first}"), soft_wrap=True)
        console.print()
    console.print(
        "fedbb methods NAME shows the parts, costs and options of a method. Two methods combine as "
        "base+balancing, such as moon+fedbb; a balanced classifier may follow. NAME may be such a "
        "combination. Formulas and sources: docs/methods.md.",
    )


def describe_method(name: str) -> dict[str, Any]:
    """Return the parts, costs and options of a method or of a combination.

    Args:
        name: A name of a method, or several joined by plus signs.

    Raises:
        RecipeError: It is unknown, or its parts do not suit each other.
    """
    method, parts = build_method(name, {}), name.split("+")
    builders = [{**METHODS, **HEADS}[part] for part in parts]
    options = {part: hyper_parameters(part) for part in parts}
    return {
        "name": name,
        "group": _group(builders[0].__module__),
        "about": "\n".join(map(_about, builders)),
        "loss": _name(method.loss),
        "penalties": [_name(penalty) for penalty in method.penalties],
        "weighting": _name(method.weighting),
        "merge": getattr(method.merge, "__name__", _name(method.merge)),
        "sampling": _name(method.sampling),
        "personal": None if method.personal is None else _name(method.personal),
        "distillation": None if method.distillation is None else _name(method.distillation),
        "statistics": [_name(statistic) for statistic in method.statistics],
        "server": [_name(step) for step in method.server],
        "compression": None if method.compression is None else _name(method.compression),
        "server_sees": SEEN[_visibility(method)],
        "tasks": [str(task) for task in Task if method.supports(task)],
        "cost": _cost(method),
        "options": options if len(parts) > 1 else options[name],
    }


def _about(builder: Callable[..., object]) -> str:
    """Return the docstring of a builder without its arguments."""
    return (inspect.getdoc(builder) or "").partition("\n\nArgs:")[0]


def _group(module: str) -> str:
    titles = (
        title
        for title, modules in GROUPS.items()
        if module.removeprefix("fedbb.methods.") in modules
    )
    return next(titles, "Further methods")


def _name(part: object) -> str:
    return type(part).__name__


def _visibility(method: Method) -> Visibility:
    """Return what the server must see; in the open it sees more."""
    found = [method.sampling.visibility]
    found += [statistic.visibility for statistic in method.statistics]
    found += [step.visibility for step in method.server]
    return max(found)


def _cost(method: Method) -> str:
    """Say what a step and a round cost beside plain training; `fedbb cost` counts it."""
    needs: Needs = method.needs
    parts = []
    if needs.forwards:
        parts.append(f"{needs.forwards} more forward passes a step")
    if needs.tail_width is not None:
        parts.append(f"the last stage again at {needs.tail_width:g} of its width")
    if needs.models:
        parts.append(f"{counted(needs.models, 'more model')} held")
    if method.personal is not None and method.personal.second is not None:
        parts.append("training of a second model, which the client keeps")
    elif method.personal is not None:
        parts.append("a part of the model kept by every client")
    if method.personal is not None and (more := method.personal.epochs(0)):
        parts.append(f"{counted(more, 'epoch')} more in a round")
    if (lesson := method.distillation) is not None and lesson.taught == "server":
        parts.append(f"{lesson.steps_over(0)} steps of the server on public inputs")
    elif lesson is not None:
        parts.append(f"{counted(lesson.epochs, 'epoch')} of every client on public inputs")
    if method.compression is not None and not method.compression.sends_all:
        parts.append("less sent to the server")
    if method.compression is not None and method.compression.keeps:
        parts.append("what is not sent kept by every client")
    if needs.client_state or any(penalty.needs.keeps for penalty in method.penalties):
        parts.append("a state kept by every client")
    if method.sampling.keeps:
        parts.append("gradients of a probe compared after training")
    if method.statistics:
        parts.append("statistics sent beside the model")
    if any(statistic.moment == "merged" for statistic in method.statistics):
        parts.append("the merged model sent to the clients once more")
    if any(step.sets_classifier for step in method.server):
        parts.append("the served classifier made by the server")
    if any(not step.shares_model for step in method.server):
        parts.append("a model of every client held by the server")
    elif any(step.sees_updates for step in method.server):
        parts.append("all models of a round held by the server")
    return ", ".join(parts) or "as FedAvg"


def _lines(row: dict[str, Any]) -> list[str]:
    slots = [f"loss {row['loss']}", f"weighting {row['weighting']}", f"merge {row['merge']}"]
    slots += [f"sampling {row['sampling']}"] if row["sampling"] != "Sampling" else []
    slots += [f"{slot} {row[slot]}" for slot in ("personal", "distillation") if row[slot]]
    slots += [f"{slot} {', '.join(row[slot])}" for slot in _SEVERAL if row[slot]]
    slots += [f"compression {row['compression']}"] if row["compression"] is not None else []
    facts = f"tasks {', '.join(row['tasks'])} · cost {row['cost']}"
    tables = row["options"] if "+" in row["name"] else {"": row["options"]}
    options = [
        f"options {f'of {part} ' if part else ''}"
        + "  ".join(f"{key}={value}" for key, value in table.items())
        for part, table in tables.items()
        if table
    ]
    return [
        row["about"],
        " · ".join(slots),
        f"{facts} · the server needs {row['server_sees']}",
        *(options or ["no options"]),
    ]


_SEVERAL = ("penalties", "statistics", "server")
"""The slots that take several parts."""
