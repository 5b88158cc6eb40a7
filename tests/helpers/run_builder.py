"""Run folders with plausible seeded figures, in the format that `fedbb.runs` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedbb.rng import stream

SIZES = {"multiclass": 10, "multilabel": 6}
LEVELS = {"fedavg": 0.62, "fedavg-scaled": 0.68, "fedbb": 0.74}
METRICS = ("accuracy", "balanced_accuracy", "f1", "auroc", "average_precision")
VECTORS = ("recall", "f1", "auroc", "average_precision")


@dataclass(frozen=True)
class Sketch:
    """What a made-up run shall look like."""

    method: str = "fedavg"
    seed: int = 0
    data: str = "digits"
    task: str = "multiclass"
    classes: tuple[str, ...] = ()
    rounds: int = 6
    clients: int = 6
    finished: bool = True
    validation: bool = False
    level: float | None = None
    undefined: tuple[int, ...] = ()
    recipe: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return self.classes or tuple(str(number) for number in range(SIZES[self.task]))


def build(folder: Path, sketch: Sketch) -> Path:
    """Write the files of one run and return its folder."""
    folder.mkdir(parents=True)
    records = [_record(sketch, number) for number in range(1, sketch.rounds + 1)]
    write(folder / "recipe.json", _recipe(sketch))
    write(folder / "federation.json", _federation(sketch))
    write(folder / "environment.json", {"fedbb": "0.1.0", "torch": "2.13.0", "cores": 2})
    write(folder / "partition.json", {})
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "rounds.jsonl").write_text(lines)
    if sketch.finished:
        write(folder / "summary.json", _summary(sketch, records))
    return folder


def build_all(root: Path, sketches: Iterable[Sketch]) -> list[Path]:
    """Write several runs, each into a folder of its own."""
    return [
        build(root / f"{sketch.data}-{sketch.method}-{sketch.seed}-{number}", sketch)
        for number, sketch in enumerate(sketches)
    ]


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def _recipe(sketch: Sketch) -> dict[str, Any]:
    partition = {"kind": "label-skew", "clients": sketch.clients, "concentration": 0.3}
    data: dict[str, Any] = {"name": sketch.data, "partition": partition}
    if sketch.task == "multiclass":
        data["long_tail"] = 0.1
    values = {
        "seed": sketch.seed,
        "data": data,
        "method": {"name": sketch.method},
        "rounds": {"number": sketch.rounds},
    }
    return values | sketch.recipe


def _federation(sketch: Sketch) -> dict[str, Any]:
    rng = stream(sketch.seed, "federation", sketch.data)
    number = len(sketch.names)
    tail = np.maximum(120 * 0.1 ** (np.arange(number) / max(1, number - 1)), 1)
    shares = rng.dirichlet(np.full(sketch.clients, 0.4), size=number)
    positives = np.floor(shares * tail[:, None]).T
    samples = np.maximum(positives.sum(axis=1), 1).astype(int)
    dispersion = (positives / samples[:, None]).std(axis=1) + 1e-3
    by_samples, balanced = samples / samples.sum(), 1 / dispersion / (1 / dispersion).sum()
    is_balanced = sketch.method == "fedbb"
    return {
        "data": sketch.data,
        "task": sketch.task,
        "classes": list(sketch.names),
        "train": int(samples.sum()),
        "scored": {"test": 300},
        "positives": positives.sum(axis=0).tolist(),
        "clients": [
            {
                "client": client,
                "samples": int(samples[client]),
                "dispersion": float(dispersion[client]) if is_balanced else None,
                "weight": float((balanced if is_balanced else by_samples)[client]),
                "weight_by_samples": float(by_samples[client]),
                "loss_weight": 1.0,
                "positives": positives[client].tolist(),
            }
            for client in range(sketch.clients)
        ],
        "notes": [],
    }


def _record(sketch: Sketch, number: int) -> dict[str, Any]:
    rng = stream(sketch.seed, "scores", sketch.data, sketch.method, number)
    scores = {"test": _scores(sketch, number, rng)}
    if sketch.validation:
        scores["validation"] = _scores(sketch, number, rng)
    return {
        "round": number,
        "clients": [
            {"client": client, "weight": 1 / sketch.clients, "steps": 5, "train_loss": 1 / number}
            for client in range(sketch.clients)
        ],
        "scores": scores,
        "seconds": {"train": 0.5, "score": 0.25},
    }


def _scores(sketch: Sketch, number: int, rng: np.random.Generator) -> dict[str, Any]:
    level = LEVELS[sketch.method] if sketch.level is None else sketch.level
    reached = level * (1 - 0.6**number)
    size = len(sketch.names)
    slope = np.linspace(0.2, -0.3 if sketch.method != "fedbb" else -0.1, size)
    per_class = {
        name: np.clip(reached + slope + rng.normal(0, 0.03, size), 0.0, 1.0).tolist()
        for name in VECTORS
    }
    for name in VECTORS:
        for index in sketch.undefined:
            per_class[name][index] = None
    noise = 0.0 if sketch.level is not None else 0.012
    macro = {name: float(np.clip(reached + rng.normal(0, noise), 0, 1)) for name in METRICS}
    return {
        "samples": 300,
        "macro": macro,
        "per_class": per_class,
        "defined": {name: size - len(sketch.undefined) for name in METRICS},
    }


def _summary(sketch: Sketch, records: list[dict[str, Any]]) -> dict[str, Any]:
    chosen_on = "validation" if "validation" in records[0]["scores"] else "test"
    metric = "balanced_accuracy" if sketch.task == "multiclass" else "auroc"
    best = max(records, key=lambda record: record["scores"][chosen_on]["macro"][metric])
    return {
        "rounds": len(records),
        "metric": metric,
        "best": {"round": best["round"], "chosen_on": chosen_on, "scores": best["scores"]},
        "final": {"round": len(records), "scores": records[-1]["scores"]},
        "sha256": "0" * 64,
    }
