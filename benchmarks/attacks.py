"""What lying clients cost: the plain mean and every robust rule under every attack.

Digits with a skew of labels, a small CNN, FedBB with its CBR weights. Some clients train as they
should and spoil what they send, or train on false labels. Printed are the balanced accuracy on the
test data after the last round, and its loss against the plain mean without an attack.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.child import ROOT
from benchmarks.page import table
from fedbb.errors import DivergedError
from fedbb.evaluation.metrics import Scorer
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.rng import stream
from fedbb.rounds.loop import Start, run_rounds
from fedbb.rounds.round import PlainRound, train_all
from fedbb.runs.federation import prepare
from fedbb.runs.runtime import local_config_of, network_of
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot
from fedbb.training.threads import threads

sys.path.insert(0, str(ROOT / "tests"))
from helpers.attackers import Infiltrated, Spoil, add_noise, flip_labels, move_by, without

NOBODY = "nobody lies"
AWAY = "the liars stay away"
FALSE_LABELS = "false labels"

ATTACKS: dict[str, Spoil | None] = {
    NOBODY: None,
    AWAY: None,
    "sign flipped": move_by(-1.0),
    "sign flipped, four times as long": move_by(-4.0),
    "a hundred times as long": move_by(100.0),
    "Gaussian noise": add_noise(1.0),
    FALSE_LABELS: None,
}

CHANCE = 0.1
PLAIN = "plain mean"
SETTING = ("rounds", "images", "seeds", "clients", "liars", "concentration", "max_norm")


def rules(byzantine: int, max_norm: float) -> dict[str, dict[str, Any]]:
    """Return the defense of a recipe by the name of its rule."""
    return {
        PLAIN: {},
        "clip": {"rule": "clip", "max_norm": max_norm},
        **{
            name: {"rule": name, "byzantine": byzantine}
            for name in ("median", "trimmed-mean", "krum", "multi-krum")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--images", type=int, default=900)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=9)
    parser.add_argument("--liars", type=int, default=2)
    parser.add_argument("--concentration", type=float, default=1.0)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        found = measure(options, pool)
    setting = {key: vars(options)[key] for key in SETTING}
    print("written to", results.write("attacks", {**setting, **found}, options.out))
    print(tell(found["balanced_accuracy"]))


def measure(options: argparse.Namespace, pool: Executor) -> dict[str, Any]:
    """Return the scores of every seed by attack and rule."""
    named = rules(options.liars, options.max_norm)
    cells = [
        (attack, name)
        for attack in options.attacks
        for name in named
        # Who stays away is missed by all rules alike; one tells what their data was worth.
        if attack != AWAY or name == PLAIN
    ]
    begun = {
        (attack, name): [
            pool.submit(attacked, make(options, named[name], seed), attack, options.liars)
            for seed in range(options.seeds)
        ]
        for attack, name in cells
    }
    found: dict[str, dict[str, list[float]]] = {attack: {} for attack in options.attacks}
    for (attack, name), futures in begun.items():
        scores = found[attack][name] = [round(future.result(), 5) for future in futures]
        print(f"{attack:34} {name:14} {scores}", flush=True)
    return {"balanced_accuracy": found}


def make(options: argparse.Namespace, defense: dict[str, Any], seed: int) -> Recipe:
    """Return the recipe of one run."""
    return make_recipe(
        {
            "seed": seed,
            "engine": "inline",
            "data": {
                "name": "digits",
                "train_images": options.images,
                "partition": {
                    "kind": "label-skew",
                    "clients": options.clients,
                    "concentration": options.concentration,
                },
            },
            "method": {"name": "fedbb"},
            "local": {"batch_size": 10, "lr": 0.03},
            "rounds": {"number": options.rounds},
            "defense": defense,
        }
    )


def attacked(recipe: Recipe, attack: str, number: int) -> float:
    """Return the balanced accuracy after the last round, that of chance if nothing is left."""
    method, plan = check_recipe(recipe), local_config_of(recipe)
    federation = prepare(recipe)
    shares = federation.clients
    chosen = stream(recipe.seed, "liars").choice(len(shares), number, replace=False)
    byzantine = frozenset(chosen.tolist())
    if attack == FALSE_LABELS:
        shares = flip_labels(shares, byzantine)
    model = network_of(recipe, method, federation.dataset)
    first = snapshot(model)
    engine = Inline(model, shares, method, plan)
    spoil = ATTACKS[attack]
    ask = train_all(engine if spoil is None else Infiltrated(engine, byzantine, spoil))
    if attack == AWAY:
        ask = without(ask, byzantine)
    infos = Inline(model, federation.clients, method, plan).client_infos()
    join = PlainRound(ask, method, infos, recipe.seed, recipe.defense)
    scorer = Scorer(model, federation.dataset, federation.scored)
    with threads(plan.threads):
        try:
            *_, last = run_rounds(join, Start(first, seed=recipe.seed), recipe.rounds, scorer)
        except DivergedError:
            return CHANCE  # a model of no finite numbers tells nothing
    return float(last.scores["test"].macro["balanced_accuracy"])


def tell(found: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return a table of mean scores in percent, and in brackets of points lost."""
    base = found[NOBODY][PLAIN] if NOBODY in found else None
    names = list(next(iter(found.values())))
    rows = [
        (attack, *(_cell(scores[name], base) if name in scores else "" for name in names))
        for attack, scores in found.items()
    ]
    return table(("", *names), rows)


def _cell(scores: list[float], base: list[float] | None) -> str:
    mean = f"{100 * statistics.fmean(scores):.1f}"
    if base is None:
        return mean
    gained = statistics.fmean(b - a for a, b in zip(base, scores, strict=True))
    return f"{mean} ({100 * gained:+.1f})"


if __name__ == "__main__":
    main()
