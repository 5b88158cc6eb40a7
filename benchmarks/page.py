"""Writes the results into docs/performance.md, between its markers, and draws its figure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.child import ROOT
from benchmarks.figure import draw
from fedbb._util.table import make_table, to_markdown

NAMES = {
    "small-cnn": "small CNN",
    "lenet": "LeNet",
    "mlp": "MLP",
    "resnet11": "ResNet-11",
    "resnet56": "ResNet-56",
}
MISSING = "*Not measured yet.*"
FIGURE = "Speed relative to a bare loop, and round times of other frameworks"

Result = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=results.FOLDER)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    options = parser.parse_args()
    text = options.page.read_text(encoding="utf-8")
    for name, tables in TABLES.items():
        result = results.read(name, options.results)
        text = fill(text, name, MISSING if result is None else tables(result))
    figure = options.page.with_suffix(".svg")
    if draw(options.results, figure):
        text = fill(text, "figure", f"![{FIGURE}]({figure.name})")
    options.page.write_text(text, encoding="utf-8")
    print("written to", options.page)


def fill(text: str, name: str, content: str) -> str:
    """Return the text with what stands between the markers of this name replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    filled, found = re.subn(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)
    if found != 1:
        raise SystemExit(f"the page has {found} places marked {begin} … {end}, not one")
    return filled


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table of Markdown."""
    return to_markdown(make_table(head, rows, words=len(head)), escaped=False).rstrip("\n")


def rounds(result: Result) -> str:
    """Return the table of variants by network."""
    rows = []
    for model, measured in result["models"].items():
        size = f"{measured['clients']} × {measured['images']}"
        for name, variant in measured["variants"].items():
            ratio, outside = variant["ratio"], variant.get("outside_training")
            rows.append(
                (
                    f"{NAMES.get(model, model)}, {size}",
                    name,
                    results.format_spread(ratio),
                    f"{1 / ratio['median']:.2f}",
                    f"{variant['images_per_second']['median']:,.0f}",
                    "" if outside is None else f"{100 * outside['median']:.1f} %",
                )
            )
    head = (
        "network, clients × images",
        "variant",
        "time / bare loop",
        "speed-up",
        "images/s",
        "outside training",
    )
    return table(head, rows) + _made(result, f"{result['repeats']} repeats after one warm-up")


def steps(result: Result) -> str:
    """Return the table of PNB's cost by network and task."""
    rows = [
        (
            NAMES.get(model, model),
            {"multiclass": "CE", "multilabel": "BCE"}[task],
            results.format_spread(measured["ratio"], 3),
            str(measured["pairs"]),
            f"{100 * measured['loss_alone_share']:+.2f} %",
        )
        for model, tasks in result["models"].items()
        for task, measured in tasks.items()
    ]
    head = ("network", "plain loss", "PNB step / plain step", "pairs", "losses alone")
    return table(head, rows) + _made(
        result, "in parentheses the 95 % bootstrap interval of the median"
    )


def precision(result: Result) -> str:
    """Return the table of what bf16 brings by network."""
    rows = [
        (
            NAMES.get(model, model),
            results.format_spread(measured["speed"]),
            str(measured["pairs"]),
            f"{measured['float32_images_per_second']:,.0f}",
            f"{measured['bf16_images_per_second']:,.0f}",
        )
        for model, measured in result["models"].items()
    ]
    head = (
        "network",
        "bf16 / float32 images per second",
        "pairs",
        "float32 images/s",
        "bf16 images/s",
    )
    found = " and ".join(result["instructions"]) or "no bf16 instructions"
    return table(head, rows) + _made(
        result, f"in parentheses the 95 % bootstrap interval of the median. A CPU with {found}"
    )


def start(result: Result) -> str:
    """Return the table of the first round's time."""
    rows = [
        (
            NAMES.get(model, model),
            results.format_spread(measured["ratio"]),
            results.format_spread(measured["beyond_torch"]),
            results.format_spread(measured["begun"]),
        )
        for model, measured in result["models"].items()
    ]
    head = ("network", "time / `import torch`", "additional seconds", "of these, before training")
    return table(head, rows) + _made(result, f"{result['repeats']} repeats")


def peers(result: Result) -> str:
    """Return the table of frameworks, and why some have no numbers."""
    rows, failed = [], []
    for name, peer in result["peers"].items():
        if "failed" in peer:
            failed.append(f"{name} gave no result.")
            continue
        ratio = peer.get("ratio", {})
        rows.append(
            (
                f"{name} {peer['version']}",
                *(_against(ratio, key, peer[key]) for key in ("later", "first")),
                f"{_times(ratio, 'peak')}{peer['peak'] / 2**30:.2f} GB",
                str(peer["processes"]),
            )
        )
    head = ("", "later round", "first round, from start", "peak memory", "processes")
    runs = "one run" if result["repeats"] == 1 else f"{result['repeats']} runs"
    note = f"{runs} of {result['rounds']} rounds"
    return "\n\n".join([table(head, rows), *failed]) + _made(result, note + _older(result))


def _older(result: Result) -> str:
    """Return a note on frameworks that ran on an older Python than they ask for."""
    notes: dict[str, list[str]] = {}
    for name, peer in result["peers"].items():
        wanted, used = peer.get("wanted_python"), peer.get("python", "")
        if wanted and not used.startswith(wanted + "."):
            notes.setdefault(f"on Python {used}, asks for {wanted}", []).append(name)
    return "".join(f"; {' · '.join(names)}: {note}" for note, names in notes.items())


def _against(ratio: Result, key: str, seconds: Mapping[str, float]) -> str:
    return f"{_times(ratio, key)}{results.format_spread(seconds)} s"


def _times(ratio: Result, key: str) -> str:
    return f"**{ratio[key]:.2f}** · " if key in ratio else ""


def flower(result: Result) -> str:
    """Return the table of real nodes beside the pool."""
    rows = []
    for case in result["cases"]:
        pool, nodes = case["pool"], case["Flower"]
        ratio = {key: nodes[key]["median"] / pool[key]["median"] for key in ("later", "first")}
        sent = nodes["bytes_per_round"]
        rows.append(
            (
                case["model"],
                f"{case['sites']} × {case['images']}",
                f"{results.format_spread(pool['later'])} s",
                _against(ratio, "later", nodes["later"]),
                f"{results.format_spread(nodes['up'], 1)} s",
                _against(ratio, "first", nodes["first"]),
                f"{sent['to sites'] / 1e6:.2f} · {sent['from sites'] / 1e6:.2f} MB",
            )
        )
    head = (
        "network",
        "sites × images",
        "later round in the pool",
        "later round on Flower",
        "`up` until all sites are online",
        "`up` until the first round is saved",
        "bytes per round, to · from all sites",
    )
    note = f"{result['repeats']} runs of {result['rounds']} rounds, in bold the ratio to the pool"
    return table(head, rows) + _made(result, note + _absences(result))


def _absences(result: Result) -> str:
    """Return a note on missing replies; the times of their rounds count."""
    absent = [one for case in result["cases"] for one in case["Flower"]["absent"]]
    asked = sum(case["sites"] for case in result["cases"]) * result["repeats"] * result["rounds"]
    reasons = ", ".join(dict.fromkeys(one["reason"] for one in absent))
    return f"; {len(absent)} of {asked} replies were missing ({reasons})" if absent else ""


def growth(result: Result) -> str:
    """Return the tables by clients and by samples."""
    head = ("clients", "samples", "first round, from start", "time per step", "peak memory")
    parts = []
    for series in ("clients", "samples"):
        rows = [
            (
                f"{case['clients']:,}",
                f"{case['samples']:,}",
                f"**{case['ratio']['first']:.2f}** · {results.format_spread(case['first'], 1)} s",
                f"**{case['ratio']['round_per_step']:.2f}**",
                f"**{case['ratio']['peak']:.2f}** · {case['peak']['median']:.2f} GB",
            )
            for case in result[series]
        ]
        parts.append(table(head, rows))
    note = f"{result['repeats']} repeats, in bold the ratio to the first row of the table"
    return "\n\n".join(parts) + _made(result, note)


def many(result: Result) -> str:
    """Return the table of up to a million clients."""
    rows = [
        (
            f"{case['clients']:,}",
            f"{case['samples']:,}",
            case["engine"],
            f"{results.format_spread(case['first'], 1)} s",
            f"{results.format_spread(case['later'])} s",
            f"{case['peak']:.2f} GB",
        )
        for case in result["cases"]
    ]
    head = ("clients", "samples", "engine", "first round, from start", "later round", "peak memory")
    return table(head, rows) + _made(result, f"{result['repeats']} repeats")


def scoring(result: Result) -> str:
    """Return the table of scoring in batches of 64 and of 256."""
    rows = [
        (
            NAMES.get(model, model),
            results.format_spread(measured["ratio"], 3),
            str(measured["pairs"]),
            f"{measured['images_per_second']:,.0f}",
            f"{measured['different']:,} of {measured['logits']:,}",
        )
        for model, measured in result["models"].items()
    ]
    head = ("network", "time at 64 / time at 256", "pairs", "images/s at 256", "logits that differ")
    return table(head, rows) + _made(
        result, "in parentheses the 95 % bootstrap interval of the median"
    )


def _made(result: Result, note: str) -> str:
    facts = result["machine"]
    versions = f"fedbb {facts['fedbb']}, torch {facts['torch']}, Python {facts['python']}"
    place = f"{facts['cores']} cores of {facts['processor']}, {facts['libc']}"
    return f"\n\n{note[0].upper()}{note[1:]}. {place}; {versions}; {facts['date']}."


TABLES: Mapping[str, Callable[[Result], str]] = {
    "rounds": rounds,
    "steps": steps,
    "precision": precision,
    "scoring": scoring,
    "start": start,
    "peers": peers,
    "growth": growth,
    "many": many,
    "flower": flower,
}


if __name__ == "__main__":
    main()
