"""Tuning a recipe on validation data: the learning rate first, then the options of its method."""

from __future__ import annotations

import copy
import itertools
import json
import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbb._util.files import parse_toml, replacing
from fedbb._util.plugins import AllowedCode
from fedbb._util.toml import to_toml
from fedbb.errors import DivergedError, RecipeError, RunError
from fedbb.methods import hyper_parameters
from fedbb.recipes.check import check_recipe, method_of
from fedbb.recipes.reader import make_recipe, read_recipe
from fedbb.recipes.spec import EVERY_KEY, Recipe, run_name
from fedbb.runs.federation import prepare
from fedbb.runs.folder import Record, RunFolder
from fedbb.runs.runner import DEFAULT_METRIC, score_of
from fedbb.runs.runner import run as run_recipe
from fedbb.runs.sweep import hold_folder, is_finished

if TYPE_CHECKING:
    import optuna

JOURNAL, RECIPE, RESULT, RUNS = "trials.log", "recipe.toml", "tuning.json", "runs"
"""In the folder: Optuna's journal, the tuned recipe, all trials, and the runs of the trials."""

RATES = {"sgd": (1e-4, 1.0), "adam": (1e-5, 0.1), "adamw": (1e-5, 0.1)}
"""Learning rates that are searched by default, by optimizer."""

FACTORS = (0.1, 1 / 3, 1.0, 3.0, 10.0)
"""An option is tried at these multiples of its default, as far as its method accepts them."""

NEAR_EDGE = 0.05
"""Share of a range, on its scale, within which a best value counts as lying at the edge."""


@dataclass(frozen=True)
class Search:
    """The values that are tried for one setting.

    Args:
        key: Dotted name of the setting, such as "local.lr".
        low: Smallest value of a range.
        high: Largest value of a range.
        choices: The values themselves, in place of a range.

    Raises:
        RecipeError: The range is empty or there is nothing to choose from.
    """

    key: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.choices:
            return
        if self.low is None or self.high is None or not -math.inf < self.low < self.high < math.inf:
            raise RecipeError(
                f"{self.key}: a search needs a range LOW:HIGH with LOW below HIGH, or values a,b,c"
            )

    @property
    def is_whole(self) -> bool:
        """Whether the range is one of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def is_log(self) -> bool:
        """Whether the range is searched on a logarithmic scale: where HIGH is at least 10·LOW."""
        return self.low is not None and self.high is not None and 0 < 10 * self.low <= self.high

    def suggest(self, trial: optuna.Trial) -> Any:
        """Return the value of a trial."""
        if self.choices:
            # Optuna keeps numbers and texts only; lists and tables are named by their place.
            return self.choices[trial.suggest_categorical(self.key, range(len(self.choices)))]
        assert self.low is not None
        assert self.high is not None
        if self.is_whole:
            return trial.suggest_int(self.key, int(self.low), int(self.high), log=self.is_log)
        return trial.suggest_float(self.key, self.low, self.high, log=self.is_log)

    def place_of(self, value: Any) -> Any:
        """Return how Optuna knows a value, or None if it is not among those that are tried."""
        if self.choices:
            return self.choices.index(value) if value in self.choices else None
        assert self.low is not None
        assert self.high is not None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number and self.low <= value <= self.high else None

    def is_at_edge(self, value: Any) -> bool:
        """Return whether a best value lies so close to the edge that a better one may lie beyond.

        Choices have edges if all of them are numbers.
        """
        if self.choices:
            numbers = [v for v in self.choices if isinstance(v, int | float) and v is not True]
            return len(numbers) == len(self.choices) > 2 and value in (min(numbers), max(numbers))
        scale: Callable[[float], float] = math.log if self.is_log else float
        assert self.low is not None
        assert self.high is not None
        low, high, at = scale(self.low), scale(self.high), scale(value)
        return min(at - low, high - at) <= NEAR_EDGE * (high - low)


def parse_search(text: str) -> Search:
    """Return the search of a text such as "local.lr=0.001:1" or "method.options.tau=1,3,10".

    Raises:
        RecipeError: It is not a search.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise RecipeError(
            f"--search {text!r} must be KEY=LOW:HIGH or KEY=a,b,c, as in local.lr=0.001:1"
        )
    key = key.strip()
    try:
        if ":" in values and "," not in values:
            low, high = (_number(part) for part in values.split(":"))
            return Search(key, low, high)
        return Search(key, choices=tuple(parse_toml(f"v = [{values}]")["v"]))
    except ValueError as error:
        raise RecipeError(
            f"--search {text!r}: LOW:HIGH takes two numbers, a,b,c takes values as TOML writes them"
        ) from error


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and how they did.

    Attributes:
        stage: Which of the searches, from 1.
        values: The settings by dotted name.
        score: Mean score on validation data over the seeds; None if the trial was stopped.
        rounds: Rounds that were trained, over all seeds.
        stopped: Why it was stopped early; empty if it was not.
    """

    stage: int
    values: dict[str, Any]
    score: float | None
    rounds: int
    stopped: str = ""


@dataclass(frozen=True)
class Tuned:
    """What tuning found.

    Attributes:
        recipe: The recipe with the best settings.
        metric: The score, on validation data after the last round.
        score: Its value, the mean over the seeds.
        seeds: Seeds of the trials.
        trials: All trials in their order.
        warnings: Best values that lie at the edge of their range.
    """

    recipe: Recipe
    metric: str
    score: float
    seeds: tuple[int, ...]
    trials: list[Trial]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Tuning:
    """What all trials of a tuning have in common."""

    out: Path
    metric: str
    seeds: tuple[int, ...]
    trials: int
    workers: int | None
    allow_code: AllowedCode
    progress: Callable[[Trial], None] | None


def tune(
    recipe: Recipe | Mapping[str, Any] | str | PathLike[str],
    out: str | PathLike[str],
    *,
    search: Sequence[str | Search] = (),
    trials: int = 12,
    seeds: Sequence[int] = (100,),
    workers: int | None = None,
    allow_code: AllowedCode = False,
    progress: Callable[[Trial], None] | None = None,
) -> Tuned:
    """Choose the learning rate, then the options of the method, by scores on validation data.

    Test data is never looked at. A trial that does worse than most before it is stopped early.
    Called again with the same arguments, an interrupted tuning goes on, and its runs to the bit.

    Args:
        recipe: A recipe, a table of its settings, or the path of its file; it must hold out
            validation data, or its data must have some.
        out: Folder of the trials; the tuned recipe is its recipe.toml.
        search: What to search in place of the defaults, such as "local.lr=0.001:1": first
            `local.lr` if it is among them, then all others together. By default learning rates
            over four decades, then numeric options a decade below and above their defaults.
        trials: Trials of each of the two searches; choices of fewer combinations are all tried.
        seeds: Seeds of each trial; take others than those of your results.
        workers: Worker processes; one per core if None, 0 for none.
        allow_code: Whether code that the recipe names may run.
        progress: Called after each trial.

    Returns:
        The tuned recipe, and all trials.

    Raises:
        RecipeError: The recipe or a search is wrong, or there is no validation data.
        RunError: The folder holds another tuning, or Optuna is not installed.
    """
    _require_optuna()
    if isinstance(recipe, Mapping):
        recipe = make_recipe(recipe)
    elif not isinstance(recipe, Recipe):
        recipe = read_recipe(Path(recipe))
    if trials < 1 or not seeds:
        raise RecipeError(f"tuning needs a trial and a seed at least, not {trials} and {seeds}")
    check_recipe(recipe, allow_code=allow_code)
    stages = _stages(recipe, search, allow_code)
    metric = _metric_of(recipe)
    tuning = _Tuning(Path(out), metric, tuple(seeds), trials, workers, allow_code, progress)
    with hold_folder(tuning.out):
        tuned = _tune(recipe, stages, tuning)
        _write(tuned, tuning.out)
    return tuned


def _stages(
    recipe: Recipe, search: Sequence[str | Search], allow_code: AllowedCode
) -> list[list[Search]]:
    """Return what is searched one after the other: the learning rate, then all else."""
    searches = [parse_search(one) if isinstance(one, str) else one for one in search]
    if not searches:
        rates = Search("local.lr", *RATES[recipe.local.optimizer])
        searches = [rates, *default_searches(recipe, allow_code)]
    keys = [one.key for one in searches]
    for key in keys:
        if keys.count(key) > 1:
            raise RecipeError(f"{key} is searched twice")
    for one in searches:
        with_settings(recipe, {one.key: one.choices[0] if one.choices else one.low})
    rate = [one for one in searches if one.key == "local.lr"]
    others = [one for one in searches if one.key != "local.lr"]
    return [stage for stage in (rate, others) if stage]


def _metric_of(recipe: Recipe) -> str:
    """Return the score that trials are compared by, after a look at the data."""
    federation = prepare(recipe, teacher=None)
    if "validation" not in federation.scored:
        raise RecipeError(
            "tuning needs validation data, as data.validation = 0.1 holds it out: settings that "
            "were chosen on test data would have no unbiased score left"
        )
    return recipe.evaluation.metric or DEFAULT_METRIC[federation.dataset.task]


def _tune(recipe: Recipe, stages: Sequence[Sequence[Search]], tuning: _Tuning) -> Tuned:
    found: list[Trial] = []
    notes: list[str] = []
    score = -math.inf
    for stage, searches in enumerate(stages, start=1):
        done = _search(recipe, searches, stage, tuning)
        best = _best_of(done, stage)
        assert best.score is not None
        found, score = found + done, best.score
        recipe = with_settings(recipe, best.values)
        notes += [note for one in searches if (note := _edge_note(one, best.values[one.key]))]
    return Tuned(recipe, tuning.metric, score, tuning.seeds, found, notes)


def _best_of(trials: Sequence[Trial], stage: int) -> Trial:
    finished = [trial for trial in trials if trial.score is not None]
    if not finished:
        raise RunError(f"no trial of search {stage} finished; {trials[-1].stopped}")
    return max(finished, key=lambda trial: trial.score or -math.inf)


def _edge_note(search: Search, value: Any) -> str:
    if not search.is_at_edge(value):
        return ""
    return (
        f"{search.key} = {value:.4g} is at the edge of what was tried; a better value may lie "
        "beyond: search a wider range"
    )


def default_searches(recipe: Recipe, allow_code: AllowedCode = False) -> list[Search]:
    """Return the searches of a method's numeric options around their values.

    A value below 1 whose triple the method rejects is a share: it is varied by its distance from 1.
    """
    parts = recipe.method.name.split("+")
    found = []
    for part in parts:
        prefix = "method.options." if len(parts) == 1 else f"method.options.{part}."
        given = recipe.method.options if len(parts) == 1 else recipe.method.options.get(part, {})
        for name, default in hyper_parameters(part).items():
            value = given.get(name, default)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                continue
            tried = _around(recipe, prefix + name, value, allow_code)
            if len(tried) > 1:
                found.append(Search(prefix + name, choices=tried))
    return found


def _around(recipe: Recipe, key: str, value: float, allow_code: AllowedCode) -> tuple[Any, ...]:
    def accepts(candidate: float) -> bool:
        try:
            method_of(with_settings(recipe, {key: candidate}), allow_code)
        except RecipeError:
            return False
        return True

    if isinstance(value, int) and value != 1:
        values: list[Any] = sorted({max(1, round(value * factor)) for factor in FACTORS})
    else:
        values = [float(f"{value * factor:.6g}") for factor in FACTORS]
        if value < 1 and not accepts(3 * value):
            values = sorted(float(f"{1 - (1 - value) * factor:.8g}") for factor in FACTORS)
    return tuple(one for one in values if accepts(one))


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Return a recipe with these values at dotted names.

    Raises:
        RecipeError: A name or value is not allowed.
    """
    values = copy.deepcopy(recipe.model_dump())
    for key, value in settings.items():
        table = values
        *tables, last = key.split(".")
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise RecipeError(f"{key}: {name} is a value, not a table of settings")
        table[last] = value
    return make_recipe(values, where="the recipe of a trial")


def _search(recipe: Recipe, searches: Sequence[Search], stage: int, tuning: _Tuning) -> list[Trial]:
    """Run the trials of one search that are still missing, and return all of them."""
    import optuna

    study = _open_study(recipe, searches, stage, tuning)
    combinations = _all_of(searches)
    wanted = tuning.trials if combinations is None else min(tuning.trials, len(combinations))
    _retry_interrupted(study)
    if not study.trials:
        for values in _first_trials(recipe, searches, combinations, wanted):
            study.enqueue_trial(values)
    while (done := _finished(study)) < wanted:
        # A sampler for each trial: after a restart the same values are drawn.
        study.sampler = optuna.samplers.TPESampler(seed=1000 * stage + done, n_startup_trials=4)
        asked = study.ask()
        values = {one.key: one.suggest(asked) for one in searches}
        trial = _run_trial(with_settings(recipe, values), values, stage, asked, tuning)
        asked.set_user_attr("trial", asdict(trial))
        state = optuna.trial.TrialState
        if trial.score is None:
            study.tell(asked, state=state.PRUNED)
        else:
            study.tell(asked, trial.score)
        if tuning.progress:
            tuning.progress(trial)
    return [Trial(**one.user_attrs["trial"]) for one in study.trials if "trial" in one.user_attrs]


def _all_of(searches: Sequence[Search]) -> list[dict[str, Any]] | None:
    """Return every combination of choices as Optuna knows them; None if there is a range."""
    if not all(one.choices for one in searches):
        return None
    places = [range(len(one.choices)) for one in searches]
    keys = [one.key for one in searches]
    return [dict(zip(keys, place, strict=True)) for place in itertools.product(*places)]


def _first_trials(
    recipe: Recipe,
    searches: Sequence[Search],
    combinations: list[dict[str, Any]] | None,
    wanted: int,
) -> list[dict[str, Any]]:
    """Return what is tried first: the recipe's own values, and all combinations if they are few."""
    own = {one.key: one.place_of(value_at(recipe, one.key)) for one in searches}
    first = [own] if None not in own.values() else []
    if combinations is not None and len(combinations) <= wanted:
        first += [one for one in combinations if one not in first]
    return first


def value_at(recipe: Recipe, key: str) -> Any:
    """Return the value at a dotted name, which an option of the method has by default."""
    *tables, last = key.split(".")
    table: Any = recipe.model_dump(context=EVERY_KEY)
    for name in tables:
        table = table.get(name, {}) if isinstance(table, dict) else {}
    if isinstance(table, dict) and last in table:
        return table[last]
    if tables[:2] != ["method", "options"]:
        return None
    part = tables[2] if len(tables) > 2 else recipe.method.name
    return hyper_parameters(part).get(last)


def _open_study(
    recipe: Recipe, searches: Sequence[Search], stage: int, tuning: _Tuning
) -> optuna.Study:
    """Open the journal of one search, and refuse one that was begun with other settings."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    try:
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(tuning.out / JOURNAL)))
        warm_up = max(1, recipe.rounds.number // 4)
        study = optuna.create_study(
            storage=storage,
            study_name=f"search {stage}",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=warm_up),
        )
    except (ValueError, KeyError, OSError) as error:
        raise RunError(f"{tuning.out / JOURNAL} cannot be used: {error}") from error
    settings = {
        "recipe": recipe.decisive.model_dump(mode="json"),
        "search": [asdict(one) | {"choices": list(one.choices)} for one in searches],
        "seeds": list(tuning.seeds),
    }
    before = study.user_attrs.get("settings")
    if before is not None and before != json.loads(json.dumps(settings)):
        raise RunError(
            f"{tuning.out} holds a tuning of another recipe, search or seeds; choose another "
            "folder (--out)"
        )
    study.set_user_attr("settings", settings)
    return study


def _retry_interrupted(study: optuna.Study) -> None:
    """Queue the trial again that was under way when the process ended."""
    import optuna

    for trial in study.trials:
        if trial.state is optuna.trial.TrialState.RUNNING:
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(trial.params)


def _finished(study: optuna.Study) -> int:
    return sum("trial" in trial.user_attrs for trial in study.trials if trial.state.is_finished())


def _run_trial(
    recipe: Recipe, values: dict[str, Any], stage: int, asked: optuna.Trial, tuning: _Tuning
) -> Trial:
    """Train the recipe of a trial with each seed; stop as soon as it is clearly worse."""
    scores, rounds = [], 0
    for seed in tuning.seeds:
        one, score = _of_seed(recipe, seed), -math.inf
        try:
            with closing(_records(one, tuning)) as records:
                for record in records:
                    score, rounds = score_of(record, tuning.metric), rounds + 1
                    asked.report(score, rounds)
                    if asked.should_prune():
                        reason = f"worse than most after round {record['round']} of seed {seed}"
                        return Trial(stage, values, None, rounds, reason)
        except DivergedError as error:
            return Trial(stage, values, None, rounds, f"diverged: {error}")
        scores.append(score)
    return Trial(stage, values, statistics.fmean(scores), rounds)


def _of_seed(recipe: Recipe, seed: int) -> Recipe:
    return recipe.model_copy(update={"seed": seed, "name": None})


def _records(recipe: Recipe, tuning: _Tuning) -> Generator[Record, None, None]:
    """Yield the records of a run: those that its folder holds, then those that it lacks."""
    path = tuning.out / RUNS / run_name(recipe)
    folder = RunFolder(path)
    last = 0
    for record in folder.records() if folder.is_run() else ():
        last = record["round"]
        yield record
    if is_finished(folder, last, recipe.rounds.number):
        return
    running = run_recipe(
        recipe,
        path,
        resume=folder.is_run(),
        workers=tuning.workers,
        allow_code=tuning.allow_code,
    )
    with closing(running):
        for record in running:
            if record["round"] > last:
                yield record


def _write(tuned: Tuned, out: Path) -> None:
    """Write the tuned recipe, and all trials."""
    head = f"# Tuned on validation data: {tuned.metric} {tuned.score:.4f}, seeds " + ", ".join(
        map(str, tuned.seeds)
    )
    values = tuned.recipe.model_dump(mode="json")
    report = {
        "metric": tuned.metric,
        "score": tuned.score,
        "seeds": list(tuned.seeds),
        "warnings": tuned.warnings,
        "trials": [asdict(trial) for trial in tuned.trials],
    }
    texts = {RECIPE: f"{head}.\n{to_toml(values)}", RESULT: json.dumps(report, indent=1) + "\n"}
    for name, text in texts.items():
        with replacing(out / name) as file:
            file.write(text.encode())


def _require_optuna() -> None:
    try:
        import optuna
    except ImportError as error:
        raise RunError('tuning needs Optuna: pip install "fedbb[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
