"""What a site of a private run shows, and what it refuses to any peer."""

import json
import logging
import re
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from fedbb.errors import PrivacyError, QuorumError, RunError
from fedbb.flower.app.serde import TrainRequest, pack_state, pack_train_request
from fedbb.flower.app.site import Site
from fedbb.flower.app.transport import Failure, GridTransport
from fedbb.secagg.cbr import Contributor
from fedbb.secagg.flower.serde import pack_message, read_message, unpack_message
from fedbb.training.config import TrainJob
from helpers.flower_loopback import (
    FIRST_NODE,
    flower_run,
    open_loopback,
    take_identity,
    with_defense,
)
from helpers.secagg_grid import enrolled, header_of, open_grid, private_recipe, private_run

FACTS = {
    "commit": {"sha256"},
    "keys": {"cohort"},
    "shares": set(),
    "masked": {"length", "whole"},
    "agree": {"survivors", "same"},
    "unmask": set(),
    "confirm": {"sha256"},
}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


@pytest.fixture
def spied(monkeypatch):
    """What sites compute and must not show: their cards, parts and models."""
    found = {"cards": [], "parts": [], "models": []}
    train, info = Site.train, Site.info
    part, declare = Contributor.vector, Contributor.statistics

    def keep(kind, value):
        found[kind].append(value)
        return value

    def train_and_tell(site, order, memory):
        done = train(site, order, memory)
        keep("models", done.update.state)
        return done

    monkeypatch.setattr(Site, "train", train_and_tell)
    monkeypatch.setattr(Site, "info", lambda site: keep("cards", info(site)))
    monkeypatch.setattr(Contributor, "vector", lambda *own: keep("parts", part(*own)).copy())
    monkeypatch.setattr(Contributor, "statistics", lambda own: keep("parts", declare(own)))
    return found


def needles(found):
    """Yield bytes that would be seen if a site's numbers were: as text, as numbers, as tensors."""
    for info in found["cards"]:
        yield repr(info.dispersion)[:10].encode()
        yield np.float64(info.dispersion).tobytes()
    for part in found["parts"]:
        scaled = part if part.dtype == np.int64 else np.rint(np.ldexp(part, 40)).astype(np.int64)
        # A few places with three entries in a row; zeros are everywhere.
        rows = [scaled[at : at + 3] for at in range(0, len(scaled) - 2, max(1, len(scaled) // 9))]
        yield from (row.astype("<i8").tobytes() for row in rows if np.all(row))
    for model in found["models"]:
        for tensor in model.params.values():
            yield tensor.numpy().tobytes()[:32]


def test_no_message_file_or_log_line_holds_a_sites_numbers_or_model(tmp_path, spied, caplog):
    recipe = private_recipe(tmp_path, method={"name": "moon+fedbb"})
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    with caplog.at_level(logging.DEBUG):
        private_run(recipe, tmp_path / "flower", federation, grid)
    sizes = {info.samples for info in spied["cards"]}
    assert len(sizes) == 3
    assert len(spied["models"]) == 6
    unseen = list(needles(spied))
    assert len(unseen) > 50
    files = [path for path in (tmp_path / "flower").rglob("*") if path.is_file()]
    places = [passed.data for passed in grid.seen] + [path.read_bytes() for path in files]
    everything = b"\n".join([*places, caplog.text.encode()])
    assert [needle for needle in unseen if needle in everything] == []
    # The search would find them: they are in what the sites keep.
    kept = [path.read_bytes() for path in federation.path.rglob("state/**/*") if path.is_file()]
    theirs = b"\n".join(kept)
    assert any(tensor[:32] in theirs for tensor in unseen[-12:])


def test_answers_hold_a_message_and_messages_tell_no_figure(finished):
    answers = [passed for passed in finished.seen if passed.way == "from" and passed.content]
    infos = [passed for passed in answers if passed.stage == "query.number"]
    assert [dict(info.content["facts"]) for info in infos] == [{"client": k} for k in range(3)]
    assert len(answers) == 3 * (1 + 7 + 5)
    for passed in answers:
        if passed not in infos:
            assert set(passed.content) == {"letter"}
            assert header_of(passed.content)["facts"].keys() == FACTS[passed.stage]
    sizes = {stage: {len(p.data) for p in answers if p.stage == stage} for stage in FACTS}
    # A message's length tells no client from another; statistics and a round make two.
    assert {stage: len(found) for stage, found in sizes.items()} == {
        **dict.fromkeys(FACTS, 2),
        "commit": 1,
        "confirm": 1,
    }


def test_what_a_site_keeps_is_for_its_owner_only(finished):
    (folder,) = Path(finished.nodes[FIRST_NODE].config["state"]).glob("[!.]*")
    names = {path.name for path in (folder / "secure").iterdir()}
    assert names == {"journal", "lock", "masked.json", "statistics.json"}
    for name in names - {"lock"}:
        assert stat.S_IMODE((folder / "secure" / name).stat().st_mode) == 0o600
    assert (folder / "secure" / "masked.json").read_bytes() == b""  # nothing is under way


def ask(grid, kind, content, node=FIRST_NODE):
    ((_, outcome),) = GridTransport(grid, poll=0.01).send_and_receive(
        kind, {node: content}, 5.0, "a test"
    )
    return outcome


def last_message(grid, stage, client=0):
    return [p for p in grid.seen if (p.way, p.stage, p.client) == ("to", stage, client)][-1].content


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The grid of a run that is over."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = private_recipe(folder, rounds={"number": 1})
    federation = enrolled(recipe, folder)
    grid = open_grid(recipe, federation)
    with pytest.MonkeyPatch.context() as patch:
        take_identity(patch)
        private_run(recipe, folder / "flower", federation, grid)
    return grid


def test_messages_of_open_runs_are_not_answered_in_a_private_one(finished):
    grid = finished
    masked = unpack_message(last_message(grid, "masked"))
    order = pack_train_request(
        TrainRequest(TrainJob(0, 1, 0, masked.state), 1, "run", None), pack_state(masked.state)
    )
    for kind, content in (("train", order), ("evaluate", order), ("query.info", RecordDict())):
        outcome = ask(grid, kind, content)
        assert isinstance(outcome, Failure)
        assert 'not asked for in a run with privacy = "masked"' in outcome.reason


@pytest.mark.parametrize("stage", ["keys", "shares", "masked", "agree", "unmask"])
def test_a_message_is_answered_once(stage, finished):
    outcome = ask(finished, "train.secure", last_message(finished, stage))
    assert isinstance(outcome, Failure)
    assert "RefusedError" in outcome.reason


def test_a_message_that_the_server_did_not_sign_is_refused(finished):
    grid = finished
    content = last_message(grid, "keys")
    forged = bytearray(read_message(content))
    forged[-1] ^= 1
    outcome = ask(grid, "query.secure", pack_message("keys", bytes(forged)))
    assert "invalid signature" in outcome.reason
    outcome = ask(grid, "query.secure", pack_message("keys", b"nonsense"))
    assert "not a message" in outcome.reason
    outcome = ask(grid, "query.secure", RecordDict({"facts": ConfigRecord({"stage": "keys"})}))
    assert "ReplyError" in outcome.reason


def test_a_site_whose_data_changed_says_so_and_stays_out(tmp_path):
    recipe = with_defense(private_recipe(tmp_path), deadline=0.1, attempts=1)
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    content = None

    class Meddling(type(grid)):
        def _work(self, number, parcel):
            nonlocal content
            message = parcel.unpack()
            if message.metadata.message_type == "train.secure" and content is None:
                content = message.content
                self.nodes[FIRST_NODE].config["whole"] = True
            return super()._work(number, parcel)

    meddling = Meddling(grid.nodes, grid.run_config)
    with pytest.raises(QuorumError):
        private_run(recipe, tmp_path / "flower", federation, meddling)
    outcome = ask(meddling, "train.secure", content)
    assert "other data than when the run began" in outcome.reason


def test_training_that_diverges_tells_the_server_no_figure(tmp_path):
    local = {"batch_size": 8, "lr": 1e30}
    recipe = with_defense(private_recipe(tmp_path, local=local), deadline=0.1, attempts=1)
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    with pytest.raises(QuorumError, match="0 clients are left after stage masked"):
        private_run(recipe, tmp_path / "flower", federation, grid)
    told = [p.data for p in grid.seen if p.way == "from" and p.stage == "masked" and not p.content]
    assert len(told) == 3
    for data in told:
        assert b"DivergedError: its training produced a number that is not finite" in data
        assert b"step" not in data


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"state": ""}, 'state is missing; privacy = "masked" needs a folder'),
        ({"keys": ""}, "keys is missing; a private run needs the folder"),
        ({"keys": "/nowhere"}, "/nowhere/identity.key is missing"),
    ],
)
def test_a_site_that_lacks_something_says_what(config, told, tmp_path):
    recipe = private_recipe(tmp_path)
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation, **config)
    with pytest.raises(RunError, match=f"still missing: 0, 1, 2 .*{told}"):
        private_run(recipe, tmp_path / "flower", federation, grid)


def test_a_site_refuses_a_recipe_on_other_terms_than_its_roster(tmp_path):
    recipe = private_recipe(tmp_path)
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(with_defense(recipe, max_weight=0.5), federation)
    outcome = ask(grid, "query.number", RecordDict())
    assert "max_weight is 1.0 in the roster and 0.5 in the recipe" in outcome.reason


def test_a_site_of_another_number_than_in_the_roster_is_refused(tmp_path):
    recipe = private_recipe(tmp_path)
    grid = open_grid(recipe, enrolled(recipe, tmp_path))
    grid.nodes[FIRST_NODE].config["client"] = 1
    assert (
        "has another key, or none, for client 1" in ask(grid, "query.number", RecordDict()).reason
    )


def test_a_site_may_keep_to_private_runs(tmp_path):
    recipe = private_recipe(tmp_path, privacy="none")
    grid = open_loopback(recipe, private=True)
    with pytest.raises(RunError, match="private runs only, as its staff has set"):
        flower_run(recipe, tmp_path / "flower", grid, wait=0.0)


@pytest.mark.parametrize("guarded", [False, True], ids=["unguarded", "guarded"])
def test_a_server_cannot_read_enrolled_sites_by_an_open_recipe(guarded, tmp_path):
    """P3: the same sites and recipe, but with privacy = "none"."""
    federation = enrolled(private_recipe(tmp_path), tmp_path)
    if not guarded:
        for site in federation.sites():
            with site.settings_file.open("a") as file:
                file.write("private = false\n")
    recipe = private_recipe(tmp_path, privacy="none", rounds={"number": 1})
    grid = open_grid(recipe, federation)
    if guarded:
        with pytest.raises(RunError, match=r"is enrolled for private runs .* private = false"):
            flower_run(recipe, tmp_path / "flower", grid, wait=0.0)
        assert {passed.content for passed in grid.seen if passed.way == "from"} == {None}
        return
    flower_run(recipe, tmp_path / "flower", grid, wait=0.0)
    told = [passed for passed in grid.seen if passed.stage == "train" and passed.way == "from"]
    assert len([passed for passed in told if "state" in passed.content]) == 3


def test_a_site_that_is_not_enrolled_takes_part_in_open_runs(tmp_path):
    federation = enrolled(private_recipe(tmp_path), tmp_path)
    for site in federation.sites():
        site.roster.unlink()
    recipe = private_recipe(tmp_path, privacy="none", rounds={"number": 1})
    grid = open_grid(recipe, federation)
    _, records = flower_run(recipe, tmp_path / "flower", grid, wait=0.0)
    assert [client["client"] for client in records[0]["clients"]] == [0, 1, 2]


def test_a_site_that_gets_another_model_than_the_rest_gives_noise(tmp_path):
    """A server that sends the others a dead model would read this site's change."""
    recipe = private_recipe(tmp_path)
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)

    class Lying(type(grid)):
        def _answer(self, number, node, message):
            if "state" in message.content and number == FIRST_NODE:
                state = unpack_message(message.content).state
                dead = {name: torch.zeros_like(tensor) for name, tensor in state.params.items()}
                message.content["state"] = pack_state(replace(state, params=dead))
            return super()._answer(number, node, message)

    lying = Lying(grid.nodes, grid.run_config)
    with pytest.raises(PrivacyError, match=r"round 1: .* sums add up to noise"):
        private_run(recipe, tmp_path / "flower", federation, lying)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"privacy": "bfv"}, "privacy is masked in the roster and bfv in the recipe"),
        ({"seed": 3}, "recipe is [0-9a-f]{64} in the roster and [0-9a-f]{64} in the recipe"),
    ],
)
@pytest.mark.parametrize("kind", ["query.number", "query.secure"])
def test_a_site_refuses_a_recipe_that_it_was_not_enrolled_for(tmp_path, kind, changes, told):
    recipe = private_recipe(tmp_path)
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe.model_copy(update=changes), federation)
    outcome = ask(grid, kind, pack_message("context", b""))
    assert isinstance(outcome, Failure)
    assert re.search(told, outcome.reason)


def test_the_noise_of_a_site_is_its_own_secret(tmp_path):
    recipe = private_recipe(
        tmp_path, rounds={"number": 1}, dp={"clip": 0.5, "noise": 1.0, "delta": 1e-5}
    )
    federation = enrolled(recipe, tmp_path)
    private_run(recipe, tmp_path / "flower", federation)
    secrets = [
        json.loads(path.read_text())["noise"]
        for path in sorted(federation.path.rglob("secure/statistics.json"))
    ]
    assert len(set(secrets)) == 3
    assert {len(secret) for secret in secrets} == {64}
    files = [path for path in (tmp_path / "flower").rglob("*") if path.is_file()]
    assert not any(secret.encode() in path.read_bytes() for secret in secrets for path in files)
    entry = json.loads((tmp_path / "flower" / "audit.json").read_text("utf-8"))["dp"]
    assert (entry["rounds"], entry["simulated"], entry["least"]) == (1, False, 3)


def test_a_second_run_is_refused_unless_the_sites_settings_consent(tmp_path, caplog):
    """P5: two runs over the same data whose sums differ in one site reveal that site."""
    recipe = with_defense(private_recipe(tmp_path, rounds={"number": 1}), deadline=20.0, attempts=1)
    federation = enrolled(recipe, tmp_path)
    private_run(recipe, tmp_path / "one", federation)
    with pytest.raises(QuorumError):
        private_run(recipe, tmp_path / "two", federation)
    assert caplog.text.count("takes part in 1 private run under one roster") >= 3
    for site in federation.sites():
        with site.settings_file.open("a") as file:
            file.write("allowed-private-runs = 2\n")
    private_run(recipe, tmp_path / "two", federation, resume=True)
    assert "is run 2 of 2 allowed under this roster" in caplog.text
