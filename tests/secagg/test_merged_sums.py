"""The second sum of a round: statistics of the merged model, which the clients send in a sum."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbb.classifiers.sums import EmbeddingSums, add_sums
from fedbb.errors import PrivacyError, QuorumError, RefusedError
from fedbb.methods import build_method
from fedbb.records import ClientInfo, ModelState, Task
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.secagg import simulated
from fedbb.secagg.cbr import Contributor, Sums, split_measured_statistics, sum_exponent
from fedbb.secagg.primitives.fixed_point import to_ring
from fedbb.secagg.protocol.replay_guard import MEASURING
from fedbb.secagg.round import RoundWork
from fedbb.secagg.simulated import SimulatedTransport
from fedbb.state import select
from fedbb.statistics import form
from fedbb.training.config import TrainJob
from helpers.cover import few
from helpers.secagg_federation import Federation, everyone
from helpers.small_run import finish, small_recipe

HEAD = "fedavg+lda-head"
STEP = 2.0**-41
"""Half a unit of fixed point: the most by which one client's number is rounded."""


def open_sums(federation, model, clients):
    """Return the sums of the embeddings of these clients as they add up in the open."""
    jobs = [TrainJob(client, 1, 0, model, {}, measure=True) for client in clients]
    parts = [select(update.statistics, "embeddings.") for update in federation.engine.train(jobs)]
    return add_sums(EmbeddingSums.from_tensors(part) for part in parts)


def sums_of(federation, secure_round):
    """Return what the server steps of a round get, and the model it is about."""
    steps, seen = secure_round.server_steps, []

    class Spy(type(steps)):
        def calibrate(self, state, turn):
            seen.append(turn)
            return super().calibrate(state, turn)

    spied = replace(secure_round, server_steps=Spy(steps.steps, steps.facts, steps.measured))
    server = steps.begin(federation.first)
    result = spied(1, federation.first, everyone(), server)
    return seen[0], result


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("stage", [None, "keys", "masked", "agree", "unmask"])
def test_the_sums_are_those_of_the_open_run_over_the_clients_that_stayed(stage, task):
    federation = Federation(build_method(HEAD, {}), task)
    secure_round = federation.secure_round()
    federation.lost_later = [] if stage is None else [(stage, 3)]
    turn, result = sums_of(federation, secure_round)
    stays = stage not in ("keys", "masked")
    assert turn.clients == ((0, 1, 2, 3, 4) if stays else (0, 1, 2, 4))
    assert [report.client for report in result.reports] == [0, 1, 2, 3, 4]
    assert [seen[:2] for seen in federation.measured] == [(1, turn.clients)]
    ours = EmbeddingSums.from_tensors(select(turn.sums, "embeddings."))
    theirs = open_sums(federation, turn.merged, turn.clients)
    assert torch.equal(ours.counts, theirs.counts)
    assert ours.samples == theirs.samples
    # Each client rounds once, in units that 2^e ≥ Σn samples have together.
    bound = len(turn.clients) * STEP * 2.0 ** sum_exponent(80)
    for one, two in ((ours.sums, theirs.sums), (ours.outer, theirs.outer)):
        assert (one - two).abs().max() <= bound + 1e-12 * two.abs().max()


def test_counts_are_exact_and_sums_of_a_million_samples_fit():
    shapes = {"a.counts": form(2, dtype=torch.float64), "a.outer": form(1, dtype=torch.float64)}
    sums = Sums(3_000_000, 1.0, (0, 1, 2))
    own = Contributor(ClientInfo(0, 1_000_000), None)
    values = {
        "a.counts": torch.tensor([999_999.0, 1.0], dtype=torch.float64),
        "a.outer": torch.tensor([1_000_000 * 300.0**2], dtype=torch.float64),
    }
    vector = own.measured_vector((), values, shapes, sums)
    total = 3 * to_ring(vector, cohort=3, whole=False, scale_bits=40).view(np.int64)
    found = split_measured_statistics(np.ldexp(total.astype(np.float64), -40), shapes, sums.samples)
    assert found["a.counts"].tolist() == [3 * 999_999.0, 3.0]
    assert float(found["a.outer"]) == pytest.approx(3e6 * 300.0**2, rel=1e-11)
    # The same numbers would not fit unscaled, and a sample too large is refused by its owner.
    with pytest.raises(RefusedError, match=r"larger than 2\^22/3"):
        to_ring(values["a.outer"].numpy(), cohort=3, whole=False, scale_bits=40)
    huge = own.measured_vector((), {**values, "a.outer": values["a.outer"] * 1e4}, shapes, sums)
    with pytest.raises(RefusedError, match=r"larger than 2\^22/3"):
        to_ring(huge, cohort=3, whole=False, scale_bits=40)


def test_a_client_refuses_impossible_numbers_of_its_own():
    federation = Federation(build_method(HEAD, {}))
    (statistic,) = federation.method.statistics
    sums = open_sums(federation, federation.first, [0])
    found = {f"embeddings.{name}": tensor for name, tensor in sums.tensors().items()}
    own, told = federation.clients[0].contributor, Sums(80, 1.0, (0, 1, 2))
    own.measured_vector((statistic,), found, found, told)
    found["embeddings.counts"] = found["embeddings.counts"] + 0.5
    with pytest.raises(PrivacyError, match="statistic embeddings of this client: its class counts"):
        own.measured_vector((statistic,), found, found, told)


@pytest.mark.parametrize("field", ["model", "broadcast", "sums", "recipe"])
def test_a_client_with_another_view_makes_the_second_sum_noise(field, monkeypatch):
    def attempt():
        federation = Federation(build_method(HEAD, {}))
        secure_round = federation.secure_round()
        honest = secure_round.open_transport

        def lie(work):
            transport = honest(work)
            if work.measure:
                told = work
                if field == "model":
                    params = {n: t * 1.001 for n, t in work.state.params.items()}
                    told = replace(work, state=ModelState(params, work.state.buffers))
                if field == "broadcast":
                    told = replace(work, broadcast={"classifier.x": torch.ones(1)})
                others = honest(told)
                for number, client in federation.clients.items():
                    if number != 2 and field == "sums":
                        sums = replace(client.secrets.sums, samples=2**40)
                        secrets = replace(client.secrets, sums=sums)
                        client.statistics = replace(client.statistics, secrets=secrets)
                    if number != 2 and field == "recipe":
                        agreement = replace(federation.agreement, recipe="another")
                        client.contributor = replace(client.contributor, agreement=agreement)
                return Split(transport, others)
            return transport

        lying = replace(secure_round, open_transport=lie)
        return lying(1, federation.first, everyone(), lying.server_steps.begin(federation.first))

    with pytest.raises(PrivacyError, match="add up to noise"):
        attempt()
    # Without views in the keys the server would isolate client 2: others count as almost nothing.
    monkeypatch.setattr(simulated, "view_digest", lambda *told: "")
    attempt()


class Split:
    """A server that tells the truth to client 2 and a lie to the others."""

    def __init__(self, truth, lie):
        self.truth, self.lie = truth, lie

    def exchange(self, stage, messages):
        for client, message in messages.items():
            yield from (self.truth if client == 2 else self.lie).exchange(stage, {client: message})


def test_too_few_clients_in_the_second_sum_stop_the_round_and_it_can_be_repeated():
    federation = Federation(build_method(HEAD, {}))
    secure_round = federation.secure_round()
    server = secure_round.server_steps.begin(federation.first)
    federation.lost_later = [("masked", client) for client in (1, 2) for _ in range(3)]
    with pytest.raises(QuorumError, match=r"statistics of round 1: .*nothing was revealed"):
        secure_round(1, federation.first, everyone(), server)
    federation.lost_later = []
    again = secure_round(1, federation.first, everyone(), server)
    fresh = Federation(build_method(HEAD, {}))
    whole = fresh.secure_round()(1, fresh.first, everyone(), server)
    for name, tensor in whole.server.items():
        assert torch.equal(again.server[name], tensor)


def test_a_second_group_or_another_model_in_the_same_round_is_refused():
    """One view and one group: two sums that differ in one client would reveal it."""
    federation = Federation(build_method(HEAD, {}))
    secure_round = federation.secure_round()
    server = secure_round.server_steps.begin(federation.first)
    secure_round(1, federation.first, everyone(), server)
    (seen,) = federation.measured
    work = RoundWork(1, federation.first, {}, measure=True)
    length = 1 + sum(t.numel() for t in secure_round._shapes(work).values())
    assert work.sum_number == MEASURING + 1
    with pytest.raises(QuorumError, match="gave no answer in stage masked"):
        secure_round._sum(work, list(seen[1]), length)


@pytest.mark.parametrize(
    ("name", "privacy"),
    few(
        [
            (HEAD, "masked"),
            (HEAD, "bfv"),
            ("ccvr", "masked"),
            pytest.param("fedavg+ridge-head", "masked", marks=pytest.mark.slow),
            pytest.param("fedavg+means-head", "masked", marks=pytest.mark.slow),
        ],
        1,
    ),
)
def test_private_runs_serve_the_classifier_of_the_open_run_and_resume(
    tmp_path, name, privacy, monkeypatch
):
    if privacy == "bfv":
        pytest.importorskip("tenseal")
    settings = {"method": {"name": name}, "rounds": {"number": 2}}
    finish(small_recipe(tmp_path, **settings), tmp_path / "open")
    private = small_recipe(tmp_path, privacy=privacy, **settings)
    summary, _ = finish(private, tmp_path / "private")
    ours, theirs = (
        load_checkpoint(tmp_path / folder / "final.safetensors").state
        for folder in ("private", "open")
    )
    for key, tensor in theirs.params.items():
        assert (ours.params[key] - tensor).abs().max() < 1e-3 * (1 + tensor.abs().max())
    seen = RunFolder(tmp_path / "private").read_json("audit.json")["measured"]
    assert [entry["round"] for entry in seen] == [1, 2]

    # Killed between the two sums of round 2: the first is made again, to the same bits.
    honest = SimulatedTransport.exchange

    def killed(self, stage, messages):
        if self.training is not None and self.training.measure and self.training.number == 2:
            raise KeyboardInterrupt
        return honest(self, stage, messages)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedTransport, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            finish(private, tmp_path / "part")
    again, _ = finish(private, tmp_path / "part", resume=True)
    assert again["sha256"] == summary["sha256"]
