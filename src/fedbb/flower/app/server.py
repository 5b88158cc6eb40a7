"""What Flower runs at the server: the rounds of a recipe, kept in a run folder."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedbb.aggregation.weighting import Weighting
from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import RunError
from fedbb.evaluation.evaluator import Scorer
from fedbb.flower.app.engine import Sites
from fedbb.flower.app.node_registry import Roll
from fedbb.flower.app.run_metadata import Register, load_register, name_run, set_up
from fedbb.flower.app.settings import RunSettings, read_run_settings
from fedbb.flower.app.site import dataset_of, outline_of
from fedbb.flower.app.transport import Post
from fedbb.methods import Method
from fedbb.recipes.check import check_data, check_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import LabelCounts
from fedbb.rounds.loop import Score
from fedbb.rounds.round import PlainRound
from fedbb.runs.federation import prepare
from fedbb.runs.folder import Record, RunFolder, check_foreign, hold
from fedbb.runs.runner import check_resume, go_on
from fedbb.runs.runtime import RunRuntime, local_config_of, network_of
from fedbb.state import snapshot
from fedbb.training.threads import threads

if TYPE_CHECKING:
    from fedbb.secagg.flower.server import Aggregator

log = logging.getLogger("fedbb")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the recipe of a run config."""
    _open_log()
    settings = read_run_settings(context.run_config)
    for record in serve(Post(grid), settings):
        log.info("%s", _line(record, settings.recipe))
    log.info("all rounds are done; the run is in %s", settings.folder)


def serve(post: Post, settings: RunSettings) -> Iterator[Record]:
    """Run a recipe across the sites of a grid and yield each round once it is on disk.

    A folder that holds a run already goes on from its last whole round if the settings say so.
    """
    recipe = settings.recipe
    method = _check(recipe)
    check_foreign(settings.folder)
    if RunFolder(settings.folder).is_run() and not settings.resume:
        raise RunError(f"{settings.folder} holds a run already; resume it, or choose another")
    with hold(settings.folder) as folder, threads(recipe.local.threads):
        roll = Roll(
            post,
            _measures(method.weighting),
            hidden=recipe.privacy != "none",
            patience=max(settings.wait, 60.0),
        )
        private = _open_private(settings, method, roll) if roll.hidden else None
        own = _own_data(recipe) if settings.score == "server" else None
        if own is not None:
            roll.outline = outline_of(own.dataset)
        if folder.is_run():
            register = _take_up(folder, settings, roll)
        elif private is not None:
            register = _begin_private(folder, settings, private, own)
        else:
            register = _begin(folder, settings, method, roll, own)
        dataset = dataset_of(register.outline) if own is None else own.dataset
        check_data(recipe, method, dataset, len(register.infos))
        sites = Sites(
            post,
            roll,
            local_config_of(recipe),
            recipe.defense,
            register.run,
            patience=settings.wait,
        )
        workshop = _open_workshop(recipe, method, sites, register, own)
        if private is not None:
            workshop = _hide(workshop, folder, private, register)
        yield from go_on(folder, recipe, dataset.task, workshop)


@dataclass(frozen=True, eq=False)
class OwnData:
    """What a server that has the recipe's data scores on."""

    dataset: Dataset
    scored: dict[str, Examples]
    clients: int


def _check(recipe: Recipe) -> Method:
    if recipe.engine == "central":
        raise RunError('engine = "central" trains in one place; it has no sites')
    return check_recipe(recipe)


def _open_private(settings: RunSettings, method: Method, roll: Roll) -> Aggregator:
    # What private runs need comes with an extra, and takes its time to load.
    from fedbb.secagg.flower.server import open_aggregator

    return open_aggregator(settings, method, roll)


def _hide(
    workshop: RunRuntime, folder: RunFolder, private: Aggregator, register: Register
) -> RunRuntime:
    """Return the workshop with sums in place of what the server would see of single sites."""
    from fedbb.secagg.flower.rounds import open_rounds

    rounds = open_rounds(folder, private, register.run, workshop.state_rounds)
    score = rounds.score if register.score == "sites" else workshop.score
    return replace(workshop, round=rounds.join, score=score)


def _own_data(recipe: Recipe) -> OwnData:
    federation = prepare(recipe)
    return OwnData(federation.dataset, federation.scored, len(federation.partition.clients))


def _take_up(folder: RunFolder, settings: RunSettings, roll: Roll) -> Register:
    """Go on with a run: its sites are those it began with, some may be away."""
    check_resume(folder, settings.recipe)
    register = load_register(folder)
    if register.score != settings.score:
        raise RunError(
            f'{folder.path} was begun with score = "{register.score}", not "{settings.score}"'
        )
    roll.fix(register.infos, register.outline)
    roll.meet_again(settings.wait)
    return register


def _begin(
    folder: RunFolder, settings: RunSettings, method: Method, roll: Roll, own: OwnData | None
) -> Register:
    """Wait for all sites, then write what a run begins with."""
    divided = 0 if own is None else own.clients
    number = settings.sites or settings.recipe.data.partition.clients or divided
    infos = roll.gather(number, settings.wait)
    assert roll.outline is not None
    check_data(settings.recipe, method, dataset_of(roll.outline), len(infos))
    register = Register(name_run(settings.recipe), settings.score, roll.outline, tuple(infos))
    scored = {} if own is None else {name: len(part) for name, part in own.scored.items()}
    set_up(folder, settings.recipe, method, register, scored)
    log.info("%d sites, %d samples", len(infos), sum(info.samples for info in infos))
    return register


def _begin_private(
    folder: RunFolder, settings: RunSettings, private: Aggregator, own: OwnData | None
) -> Register:
    """Wait for all sites, have their statistics summed, and write what a run begins with."""
    roll = private.roll
    infos = roll.gather(private.clients, settings.wait)
    assert roll.outline is not None
    name = private.begun_name(folder, name_run(settings.recipe))
    register = Register(name, settings.score, roll.outline, tuple(infos), hidden=True)
    scored = {} if own is None else {name: len(part) for name, part in own.scored.items()}
    private.set_up(folder, register, scored)
    return register


def _open_workshop(
    recipe: Recipe, method: Method, sites: Sites, register: Register, own: OwnData | None
) -> RunRuntime:
    dataset = dataset_of(register.outline) if own is None else own.dataset
    model = network_of(recipe, method, dataset)
    score: Score = sites.score
    if own is not None:
        batch, device = recipe.evaluation.batch_size, local_config_of(recipe).device
        score = Scorer(model, dataset, own.scored, batch, device)
    join = PlainRound(sites.ask, method, register.infos, recipe.seed, recipe.defense)
    return RunRuntime(join, score, snapshot(model), sites.state_rounds)


def _measures(weighting: Weighting) -> bool:
    """Tell whether a weighting asks clients for a number beside their size."""
    even = LabelCounts(np.ones(2), np.ones(2), samples=2)
    return weighting.measure(even) is not None


def _line(record: Record, recipe: Recipe) -> str:
    macro: dict[str, Any] = record["scores"]["test"]["macro"]
    accuracy = macro["balanced_accuracy"]
    told = "undefined" if accuracy is None else f"{accuracy:.4f}"
    seconds = sum(record["seconds"].values())
    absent = f", {len(record['absent'])} absent" if record["absent"] else ""
    return (
        f"round {record['round']} of {recipe.rounds.number}: {len(record['clients'])} clients"
        f"{absent}, balanced accuracy {told}, {seconds:.1f} s"
    )


def _open_log() -> None:
    """Write what happens to where Flower collects it, unless somebody listens already."""
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("fedbb: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
