"""Nothing that reaches the server of a private run, or that it writes, holds a client's own values.

Sizes and counts are rare numbers, so that none of them turns up by chance.
"""

import json
import re
from functools import partial

import numpy as np
import pytest

from fedbb.recipes.reader import make_recipe
from fedbb.runs import runner
from fedbb.runs.folder import RunFolder
from fedbb.secagg import simulated
from fedbb.simulation.inline import Inline
from fedbb.trackers.export import measures
from helpers.commands import fedbb
from helpers.cover import few

COUNTS = np.array([[503, 293, 213], [601, 211, 201], [307, 307, 405], [227, 389, 405]])
SIZES = COUNTS.sum(axis=1)
KEYS = ("identity", "nonce")


def write_sites(path):
    labels = np.concatenate([np.repeat(np.arange(3), row) for row in COUNTS] + [np.arange(60) % 3])
    sites = np.repeat([*"abcd", "test"], [*SIZES, 60])
    rng = np.random.default_rng(0)
    images = rng.integers(0, 120, (len(labels), 8, 8), dtype=np.uint8)
    images[np.arange(len(labels)), labels, :] += 100
    split = np.where(sites == "test", "test", "train")
    np.savez(path, images=images, labels=labels, split=split, site=sites)
    return path


def recipe_of(tmp_path, name):
    return make_recipe(
        {
            "engine": "inline",
            "privacy": name,
            "data": {
                "name": "npz",
                "path": str(write_sites(tmp_path / "sites.npz")),
                "partition": {"kind": "column", "column": "site"},
            },
            "method": {"name": "moon+fedbb", "options": {"fedbb": {"gamma": 0.5}}},
            "local": {"batch_size": 512, "lr": 0.05},
            "rounds": {"number": 2},
        }
    )


class Run:
    """A run of which every message, screen and metric is caught, and what clients had."""

    def __init__(self, tmp_path, name, monkeypatch):
        self.passed, self.updates, self.infos = [], [], []
        self.path = tmp_path / name
        self.catch(monkeypatch)
        recipe = tmp_path / f"{name}.json"
        recipe.write_text(recipe_of(tmp_path, name).model_dump_json(exclude_none=True))
        done = fedbb("run", recipe, "--out", self.path, monkeypatch=monkeypatch)
        assert done.code == 0, done.err
        self.screen = done.out + done.err

    def catch(self, monkeypatch):
        train, client_infos = Inline.train, Inline.client_infos

        def watched_train(engine, jobs):
            for update in train(engine, jobs):
                self.updates.append((jobs[0].state, update))
                yield update

        def watched_client_infos(engine):
            self.infos = client_infos(engine)
            return self.infos

        monkeypatch.setattr(Inline, "train", watched_train)
        monkeypatch.setattr(Inline, "client_infos", watched_client_infos)
        for name in ("open_round", "enrol"):
            watching = partial(getattr(simulated, name), recorder=self.passed.append)
            monkeypatch.setattr(simulated, name, watching)

    def haystacks(self):
        """Yield all bytes the server got, sent, wrote, showed or measured."""
        for entry in self.passed:
            yield f"{entry.direction} {entry.client} {entry.stage}", entry.message
        for path in sorted(self.path.rglob("*")):
            if path.is_file() and "parties" not in path.relative_to(self.path).parts:
                yield path.name, path.read_bytes()
        yield "screen", self.screen.encode()
        for record in RunFolder(self.path).records():
            yield "measures", repr(measures(record, ["a", "b", "c"])).encode()

    def hits(self, needles):
        return [
            (place, name)
            for place, content in self.haystacks()
            for name, needle in needles
            if needle in content
        ]


def encodings(value, whole):
    kinds = ("<i8", ">i8", "<f8", ">f8") if whole else ("<f8", ">f8")
    return [np.array(value, dtype=kind).tobytes() for kind in kinds]


def number_needles(infos):
    """Yield what single clients' sizes, counts, dispersions and weights look like as bytes."""
    total = sum(1 / info.dispersion for info in infos)
    for info, counts in zip(infos, COUNTS, strict=True):
        weight = 0.5 / info.dispersion / total + 0.5 * info.samples / SIZES.sum()
        whole = {"samples": info.samples, "1/R": round(2**40 / info.dispersion)}
        whole |= {f"count {label}": count for label, count in enumerate(counts)}
        real = {"R": info.dispersion, "real 1/R": 1 / info.dispersion, "weight": weight}
        for name, value in {**whole, **real}.items():
            for code in encodings(value, name in whole):
                yield f"{name} of {info.client}", code
        for name, value in real.items():
            yield f"{name} of {info.client} in decimals", repr(value)[:10].encode()
        for width in ("<i4", "<f4"):
            yield f"counts of {info.client}", counts.astype(width).tobytes()


def model_needles(updates):
    """Yield what single clients' models and changes look like as bytes, in any float type."""
    for state, update in updates:
        for name, tensor in update.state.params.items():
            trained = tensor.numpy().ravel()[:4]
            change = trained.astype(np.float64) - state.params[name].numpy().ravel()[:4]
            if len(trained) == 4 and change.all():
                for values in (trained, trained.astype("<f8"), change, change.astype("<f4")):
                    yield f"{name} of {update.client}", values.tobytes()


def key_needles(folder):
    """Yield the secret keys and nonces of clients, and of the server that enrolled them."""
    kept = {path.name: json.loads(path.read_text()) for path in folder.glob("client-*.json")}
    secrets = {f"{what} of {name}": kept[name][what] for name in kept for what in KEYS}
    secrets["enrolment"] = (folder / "enrolment.key").read_text()
    for name, secret in secrets.items():
        yield name, secret.encode()
        yield name, bytes.fromhex(secret)


def words(content):
    """Yield the numbers in those parts of bytes that are text."""
    for text in re.findall(rb"[ -~\n]{20,}", content):
        yield from re.findall(rb"(?<![\w.])\d+(?![\w.])", text)


def told_sizes(run):
    secret = {str(number).encode() for number in (*SIZES, *COUNTS.ravel())}
    return {
        (place, word)
        for place, content in run.haystacks()
        for word in words(content)
        if word in secret
    }


@pytest.mark.parametrize("privacy", few(["masked", "bfv"], 1))
def test_no_byte_line_metric_or_file_of_the_server_holds_a_clients_values(
    tmp_path, monkeypatch, privacy
):
    run = Run(tmp_path, privacy, monkeypatch)
    stages = {entry.stage for entry in run.passed}
    assert {"commit", "confirm", "keys", "shares", "masked", "agree", "unmask"} <= stages
    assert len(run.updates) == 8
    assert [info.samples for info in run.infos] == SIZES.tolist()
    assert run.hits([*number_needles(run.infos), *model_needles(run.updates)]) == []
    assert told_sizes(run) == set()
    keys = list(key_needles(run.path / "parties"))
    assert len(keys) == 2 * (2 * 4 + 1)
    assert run.hits(keys) == []


def test_the_same_search_finds_all_of_it_in_an_open_run(tmp_path, monkeypatch):
    run = Run(tmp_path, "none", monkeypatch)
    found = {name for _, name in run.hits(list(number_needles(run.infos)))}
    assert {f"R of {client} in decimals" for client in range(4)} <= found
    numbers = {int(word) for _, word in told_sizes(run)}
    assert set(SIZES.tolist()) <= numbers
    models = [(n, needle) for n, needle in model_needles(run.updates) if needle]
    memories = b"".join(path.read_bytes() for path in (run.path / "memories").iterdir())
    assert any(needle in memories for _, needle in models)


def test_the_runner_takes_what_the_private_module_offers():
    # The search above would look at nothing if the runner bound these names beforehand.
    assert not hasattr(runner, "open_round")
    assert not hasattr(runner, "enrol")
