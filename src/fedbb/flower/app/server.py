"""The server app that Flower runs: the rounds of a recipe, saved in a run folder."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from fedbb.aggregation.merging import Weighting
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.public import public_digest
from fedbb.errors import RunError
from fedbb.evaluation.metrics import Scorer
from fedbb.evaluation.operating_point import ThresholdRule, decision_shift, thresholds_of_counts
from fedbb.flower import internals
from fedbb.flower.app.engine import FlowerEngine
from fedbb.flower.app.node_registry import NodeRegistry
from fedbb.flower.app.run_metadata import RunMetadata, load_run_metadata, name_run, set_up
from fedbb.flower.app.serde import Outline
from fedbb.flower.app.settings import RunSettings, read_run_settings, split_names
from fedbb.flower.app.site import dataset_of, outline_of
from fedbb.flower.app.transport import GridTransport
from fedbb.imbalance import count_labels
from fedbb.methods import Method
from fedbb.models.base import classifier_name, norm_names
from fedbb.recipes.check import check_data, check_named_code, check_recipe
from fedbb.recipes.privacy import SCORES_DIFFER, may_difference
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, LabelCounts, ModelState, RunFacts
from fedbb.rounds.loop import Score
from fedbb.rounds.round import PlainRound, accept_all
from fedbb.rounds.server_steps import ServerSteps, open_distiller
from fedbb.runs.federation import load_public, prepare, sums_inputs
from fedbb.runs.final_scores import (
    FinalScorer,
    ModelScores,
    OperatingPoint,
    check_evaluation,
    check_threshold_classes,
    threshold_rule,
)
from fedbb.runs.folder import Record, RunFolder, check_foreign, hold
from fedbb.runs.metadata import model_info_of
from fedbb.runs.model_info import ModelInfo
from fedbb.runs.runner import check_resume, go_on
from fedbb.runs.runtime import RunRuntime, ScoreFully, local_config_of, network_of, networks_of
from fedbb.secagg.audit import AuditFile
from fedbb.state import snapshot
from fedbb.statistics import statistic_shapes
from fedbb.training.checks import check_personal, check_statistics
from fedbb.training.local import NO_MODEL
from fedbb.training.threads import threads

if TYPE_CHECKING:
    from fedbb.secagg.flower.server import SecureRounds, SecureServer

log = logging.getLogger("fedbb")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the recipe of a run config."""
    transport = GridTransport(grid, arrivals=internals.Arrivals.of(grid))
    internals.adjust_server_pulls(transport.longest_reply)
    _open_log()
    settings = read_run_settings(context.run_config)
    for record in serve(transport, settings):
        log.info("%s", _line(record, settings.recipe))
    log.info("all rounds are done; the run is in %s", settings.folder)


def serve(transport: GridTransport, settings: RunSettings) -> Iterator[Record]:
    """Run a recipe across the sites of a grid and yield each round once it is on disk.

    A folder that already holds a run continues after its last complete round if the settings say
    so.

    Raises:
        RunError: the folder cannot be used, or sites are missing or contradict each other.
    """
    recipe = settings.recipe
    method = _check(recipe)
    check_foreign(settings.folder)
    if RunFolder(settings.folder).is_run() and not settings.resume:
        raise RunError(f"{settings.folder} already holds a run; resume it, or choose another")
    with hold(settings.folder) as folder, threads(recipe.local.threads):
        registry = _open_registry(transport, settings, method)
        private = _open_private(settings, method, registry) if registry.hidden else None
        own = _own_data(recipe) if settings.score == "server" else None
        if own is None:
            _check_scored_by_sites(recipe, None if private is None else private.clients)
        elif private is not None and not method.shares_model:
            _check_own_models(recipe, method, private.clients)
        if own is not None:
            registry.outline = outline_of(own.dataset)
        if folder.is_run():
            metadata = _resume(folder, settings, registry)
        elif private is not None:
            metadata = _begin_private(folder, settings, method, private, own)
        else:
            metadata = _begin(folder, settings, method, registry, own)
        if private is not None:
            outline = private.normalized(metadata.outline, folder)
            measured = AuditFile.read(folder.path).measured
            metadata = replace(metadata, measured=measured, outline=outline)
            own = own.normalized(outline) if own and sums_inputs(recipe) else own
        dataset = _dataset(recipe, metadata.outline, own)
        check_data(recipe, method, dataset, len(metadata.infos))
        engine = FlowerEngine(
            transport,
            registry,
            local_config_of(recipe),
            recipe.defense,
            metadata.run,
            patience=settings.wait,
            method=method,
        )
        runtime = _open_runtime(recipe, method, engine, metadata, own)
        if private is not None:
            runtime = _hide(runtime, folder, private, metadata)
        yield from go_on(folder, recipe, dataset.task, runtime)


def _open_registry(transport: GridTransport, settings: RunSettings, method: Method) -> NodeRegistry:
    recipe = settings.recipe
    return NodeRegistry(
        transport,
        _measures(method.weighting),
        hidden=recipe.privacy != "none",
        patience=max(settings.wait, 60.0),
        method=method,
        key_clients=settings.node_keys,
        label_counts=bool(recipe.evaluation.logit_adjustment),
    )


@dataclass(frozen=True, eq=False)
class OwnData:
    """The data on which a server scores models, if it has the recipe's data."""

    dataset: Dataset
    scored: dict[str, Examples]
    clients: int
    final: FinalScorer

    def normalized(self, outline: Outline) -> OwnData:
        """Return the data as all sites normalize theirs."""
        mean, std = outline.mean or (), outline.std or ()
        return replace(self, dataset=replace(self.dataset, mean=mean, std=std))


def _dataset(recipe: Recipe, outline: Outline, own: OwnData | None) -> Dataset:
    """Return the server's data, or its form, with the public inputs if the recipe has some.

    Raises:
        RunError: The server has other public inputs than the sites.
    """
    dataset = load_public(recipe, dataset_of(outline)) if own is None else own.dataset
    if public_digest(dataset.public) != outline.public:
        raise RunError(
            "the server has other public inputs (data.public) than the sites, or than the run "
            f"began with: their SHA-256 is {public_digest(dataset.public)}, not {outline.public}"
        )
    return dataset


def _check(recipe: Recipe) -> Method:
    if recipe.engine == "central":
        raise RunError('engine = "central" trains in one place; it has no sites')
    if recipe.rounds.topology is not None:
        raise RunError("rounds.topology is for simulations; on Flower there is a server")
    check_named_code(recipe, _allowed_code())
    return check_recipe(recipe, allow_code=_allowed_code())


def _check_own_models(recipe: Recipe, method: Method, enrolled: int) -> None:
    """Refuse sums of scores of the sites' own models that would reveal those of one site."""
    if may_difference(recipe, enrolled):
        raise RunError(
            f"under {method.name} every site has {method.unshared} for itself and scores its own "
            f"model: {SCORES_DIFFER}"
        )


def _check_scored_by_sites(recipe: Recipe, enrolled: int | None) -> None:
    """Refuse what only a server with data of its own can compute, or may know."""
    if enrolled is not None and may_difference(recipe, enrolled):
        raise RunError(f'score = "sites" in a private run: {SCORES_DIFFER}')
    if recipe.evaluation.logit_adjustment:
        raise RunError(
            'evaluation.logit_adjustment needs test data at the server: score = "server"'
        )
    if recipe.evaluation.threshold is not None and recipe.privacy != "none":
        raise RunError(
            "evaluation.threshold of a private run needs validation data at the server: "
            'score = "server"'
        )


def _allowed_code() -> tuple[str, ...]:
    """Return the networks and losses in code that the server's operator allows.

    Not from the run config, which comes with the recipe.
    """
    return split_names(os.environ.get("FEDBB_ALLOWED_CODE", ""))


def _open_private(settings: RunSettings, method: Method, registry: NodeRegistry) -> SecureServer:
    # Private runs need an extra, and its libraries take time to load.
    from fedbb.secagg.flower.server import open_secure_server

    return open_secure_server(settings, method, registry)


def _hide(
    runtime: RunRuntime, folder: RunFolder, private: SecureServer, metadata: RunMetadata
) -> RunRuntime:
    """Return the runtime with secure sums in place of single sites' updates and scores."""
    from fedbb.secagg.flower.server import OwnModelSums, open_rounds

    rounds = open_rounds(
        folder, private, metadata.run, runtime.state_rounds, runtime.round.server_steps
    )
    score = rounds.score if metadata.score == "sites" else runtime.score
    fully = runtime.score_fully
    if private.recipe.data.own_test > 0:
        fully = _with_site_sums(rounds, fully)
    clients = None if runtime.score_clients is None else OwnModelSums(rounds)
    return replace(
        runtime, round=rounds.round, score=score, score_fully=fully, score_clients=clients
    )


def _with_site_sums(rounds: SecureRounds, score: ScoreFully | None) -> ScoreFully:
    """Return full scores with what a secure sum reveals of the sites' own test data."""

    def score_all(number: int, state: ModelState) -> ModelScores:
        scores = ModelScores(number, None) if score is None else score(number, state)
        return replace(scores, site_sums=rounds.score_sites(number, state))

    return score_all


def _own_data(recipe: Recipe) -> OwnData:
    # Sites score on their own test data themselves.
    federation = replace(prepare(recipe), own_test=None)
    check_evaluation(recipe, federation)
    return OwnData(
        federation.dataset,
        federation.scored,
        len(federation.partition.clients),
        FinalScorer.of(recipe, federation),
    )


def _resume(folder: RunFolder, settings: RunSettings, registry: NodeRegistry) -> RunMetadata:
    """Continue a run with the sites it began with, some of which may be away."""
    check_resume(folder, settings.recipe)
    metadata = load_run_metadata(folder)
    if metadata.score != settings.score:
        raise RunError(
            f'{folder.path} was begun with score = "{metadata.score}", not "{settings.score}"'
        )
    registry.fix(metadata.infos, metadata.outline)
    registry.await_clients(settings.wait)
    return metadata


def _begin(
    folder: RunFolder,
    settings: RunSettings,
    method: Method,
    registry: NodeRegistry,
    own: OwnData | None,
) -> RunMetadata:
    """Wait for all sites, then write the files with which a run begins."""
    divided = 0 if own is None else own.clients
    number = settings.sites or settings.recipe.data.partition.clients or divided
    infos = registry.gather(number, settings.wait)
    assert registry.outline is not None
    check_data(settings.recipe, method, dataset_of(registry.outline), len(infos))
    if method.personal is not None:
        dataset, code, recipe = dataset_of(registry.outline), _allowed_code(), settings.recipe
        networks = networks_of(recipe, method, dataset, allow_code=code)
        for network in networks or (network_of(recipe, method, dataset, allow_code=code),):
            check_personal(method, network)
        if networks:
            check_statistics(method, networks, dataset)
    outline = _pool_statistics(registry.outline, registry.outlines, infos)
    if own is None and settings.recipe.evaluation.threshold is not None:
        _check_validation(settings, method, registry, outline)
    metadata = RunMetadata(
        name_run(settings.recipe),
        settings.score,
        outline,
        tuple(infos),
        measured=registry.measured_sums(),
    )
    model = _describe_model(settings.recipe, method, outline, own)
    set_up(folder, settings.recipe, method, metadata, _scored_cases(own), model)
    log.info("%d sites, %d samples", len(infos), sum(info.samples for info in infos))
    return metadata


def _check_validation(
    settings: RunSettings, method: Method, registry: NodeRegistry, outline: Outline
) -> None:
    """Refuse thresholds that the sites cannot choose, before anything is trained or written."""
    recipe, dataset = settings.recipe, dataset_of(outline)
    check_threshold_classes(dataset.task, len(dataset.classes))
    engine = FlowerEngine(
        registry.transport,
        registry,
        local_config_of(recipe),
        recipe.defense,
        name_run(recipe),
        patience=settings.wait,
        method=method,
    )
    engine.count_cases(snapshot(network_of(recipe, method, dataset, allow_code=_allowed_code())))


def _begin_private(
    folder: RunFolder,
    settings: RunSettings,
    method: Method,
    private: SecureServer,
    own: OwnData | None,
) -> RunMetadata:
    """Wait for all sites, sum their statistics, and write the files with which a run begins."""
    registry = private.registry
    infos = registry.gather(private.clients, settings.wait)
    assert registry.outline is not None
    name = private.run_name(folder, name_run(settings.recipe))
    outline = _pool_statistics(registry.outline, registry.outlines, infos)
    metadata = RunMetadata(name, settings.score, outline, tuple(infos), hidden=True)

    def describe_model(outline: Outline) -> ModelInfo | None:
        mine = own.normalized(outline) if own and sums_inputs(settings.recipe) else own
        return _describe_model(settings.recipe, method, outline, mine)

    private.set_up(folder, metadata, _scored_cases(own), describe_model)
    return metadata


def _pool_statistics(
    outline: Outline, outlines: Mapping[int, Outline], infos: Sequence[ClientInfo]
) -> Outline:
    """Return the outline with mean and standard deviation of the inputs of all sites.

    Sites that hold parts of one data set have the same ones. Sites with data of their own normalize
    by their own; those of all training inputs together follow from them and the numbers of samples.
    They are left out if the server of a private run does not know these.
    """
    found = [outlines[info.client] for info in infos]
    if len({(each.mean, each.std) for each in found}) == 1:
        return replace(outline, mean=found[0].mean, std=found[0].std)
    if not all(info.samples and each.mean for info, each in zip(infos, found, strict=True)):
        return replace(outline, mean=None, std=None)
    log.warning(
        "sites normalize inputs by their own mean and standard deviation; the description of the "
        "model has those of all sites together"
    )
    sizes = np.array([[info.samples] for info in infos], dtype=np.float64)
    means, stds = np.array([each.mean for each in found]), np.array([each.std for each in found])
    mean = (sizes * means).sum(axis=0) / sizes.sum()
    variance = (sizes * (stds**2 + (means - mean) ** 2)).sum(axis=0) / sizes.sum()
    return replace(outline, mean=tuple(mean.tolist()), std=tuple(np.sqrt(variance).tolist()))


def _describe_model(
    recipe: Recipe, method: Method, outline: Outline, own: OwnData | None
) -> ModelInfo | None:
    """Return what the model needs outside the run, from the server's data or from the sites."""
    if own is not None:
        return model_info_of(recipe, method, own.dataset)
    if outline.mean is None or not (outline.shape and outline.dtype):
        log.warning(
            "the sites do not report one mean and standard deviation of their inputs, so the model "
            "files hold no description, and fedbb.load_model cannot load them"
        )
        return None
    return model_info_of(recipe, method, dataset_of(outline))


def _scored_cases(own: OwnData | None) -> dict[str, LabelCounts]:
    if own is None:
        return {}
    task, classes = own.dataset.task, len(own.dataset.classes)
    return {name: count_labels(part.labels, task, classes) for name, part in own.scored.items()}


def _open_runtime(
    recipe: Recipe,
    method: Method,
    engine: FlowerEngine,
    metadata: RunMetadata,
    own: OwnData | None,
) -> RunRuntime:
    dataset = _dataset(recipe, metadata.outline, own)
    model = network_of(recipe, method, dataset, allow_code=_allowed_code())
    facts = RunFacts(
        dataset.task,
        len(dataset.classes),
        classifier_name(model),
        len(metadata.infos),
        recipe.seed,
        public=0 if dataset.public is None else len(dataset.public),
        norms=norm_names(model),
    )
    engine.facts = facts
    shapes = statistic_shapes(method.statistics, snapshot(model), facts)
    engine.transport.statistics_numbers = sum(tensor.numel() for tensor in shapes.values())
    if method.personal is not None:
        engine.kept = method.personal.entries(model)
    local = local_config_of(recipe)
    distiller = open_distiller(method, model, dataset, local, recipe.seed)
    # The engine has validated each reply on arrival; the round need not hold all to do so again.
    plain = PlainRound(
        engine.train,
        method,
        metadata.infos,
        recipe.seed,
        recipe.defense,
        validate=accept_all,
        server_steps=ServerSteps(method.server, facts, metadata.measured, distiller),
    )
    own_models = engine.score_clients(plain.server_steps, own_test=recipe.data.own_test > 0)
    clients = None if method.shares_model else own_models
    score, score_fully = _open_scorers(recipe, engine, metadata, own, model, dataset)
    return RunRuntime(
        plain,
        score,
        NO_MODEL if recipe.model.by_client else snapshot(model),
        engine.state_rounds,
        score_fully=score_fully,
        score_clients=clients,
        score_personal=None if recipe.evaluation.personal is None else own_models.personal,
    )


def _open_scorers(
    recipe: Recipe,
    engine: FlowerEngine,
    metadata: RunMetadata,
    own: OwnData | None,
    model: nn.Module,
    dataset: Dataset,
) -> tuple[Score, ScoreFully | None]:
    """Return what scores the model of a round, and what scores the final one in full."""
    score: Score = engine.score
    score_fully: ScoreFully | None = None
    if own is not None:
        batch, device = recipe.evaluation.batch_size, local_config_of(recipe).device
        scorer = score = Scorer(model, dataset, own.scored, batch, device)
        final = own.final.with_counts(metadata.measured)

        def score_fully(number: int, state: ModelState) -> ModelScores:
            return final(number, scorer.outputs(state))

    elif (rule := threshold_rule(recipe.evaluation)) is not None:
        score_fully = _choose_at_sites(engine, dataset, rule)
    if recipe.data.own_test > 0 and not metadata.hidden:
        score_fully = _with_sites(engine, dataset, score_fully)
    return score, score_fully


def _choose_at_sites(engine: FlowerEngine, dataset: Dataset, rule: ThresholdRule) -> ScoreFully:
    """Return the operating point of a model, by thresholds for the validation data of all sites."""

    def choose(number: int, state: ModelState) -> ModelScores:
        limits = thresholds_of_counts(engine.count_cases(state), dataset.task, rule)
        point = OperatingPoint(dataset.classes, tuple(limits.tolist()), None, None)
        return ModelScores(number, None, point)

    return choose


def _with_sites(engine: FlowerEngine, dataset: Dataset, score: ScoreFully | None) -> ScoreFully:
    """Return full scores with those that the sites compute on their own test data."""

    def score_all(number: int, state: ModelState) -> ModelScores:
        scores = ModelScores(number, None) if score is None else score(number, state)
        scores = replace(scores, sites=tuple(engine.score_sites(state)))
        if (point := scores.operating_point) is None:
            return scores
        both = point.thresholds, point.logit_shift
        shift = decision_shift(dataset.task, *both, len(dataset.classes))
        decided = replace(point, sites=tuple(engine.score_sites(state, shift)))
        return replace(scores, operating_point=decided)

    return score_all


def _measures(weighting: Weighting) -> bool:
    """Tell whether a weighting needs the clients' dispersion besides their size."""
    even = LabelCounts(np.ones(2), np.ones(2), samples=2)
    return weighting.measure(even) is not None


def _line(record: Record, recipe: Recipe) -> str:
    macro: dict[str, Any] = record["scores"]["test"]["macro"]
    accuracy = macro["balanced_accuracy"]
    shown = "undefined" if accuracy is None else f"{accuracy:.4f}"
    seconds = sum(record["seconds"].values())
    absent = f", {len(record['absent'])} absent" if record["absent"] else ""
    return (
        f"round {record['round']} of {recipe.rounds.number}: {len(record['clients'])} clients"
        f"{absent}, balanced accuracy {shown}, {seconds:.1f} s"
    )


def _open_log() -> None:
    """Log to standard error, which Flower collects, unless a handler is there already."""
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("fedbb: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
