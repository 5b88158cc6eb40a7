"""The sum of the clients' label counts before round 1: exact, in all schemes, and bound."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.errors import PrivacyError, RecipeError
from fedbb.methods import build_method
from fedbb.recipes.check import check_recipe
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.secagg import simulated
from fedbb.secagg.audit import AuditFile
from fedbb.secagg.cbr import MOST_MEASURED, Contributor, Sums, check_plausible, split_measured
from fedbb.secagg.client_secrets import load_secrets, secrets_path
from fedbb.secagg.round import check_label_counts
from fedbb.secagg.simulated import RoundTraining, SimulatedTransport
from helpers.secagg_federation import CLIENTS, Federation, everyone
from helpers.small_run import finish, small_recipe

NAME = FederationCounts.name
ADJUSTED = {"logit_adjustment": 0.5, "bootstrap": 10}


def counts_of(federation, clients):
    held = [federation.engine.clients[client].counts for client in clients]
    return np.sum([(count.positive, count.negative) for count in held], axis=0)


@pytest.mark.parametrize("privacy", ["masked", "bfv"])
@pytest.mark.parametrize("method", ["fedir", "fedavg"])
def test_a_private_run_has_the_label_counts_and_scores_of_the_open_one(tmp_path, method, privacy):
    if privacy == "bfv":
        pytest.importorskip("tenseal")
    settings = {"method": {"name": method}, "rounds": {"number": 2}, "evaluation": ADJUSTED}
    finish(small_recipe(tmp_path, **settings), tmp_path / "open")
    private = small_recipe(tmp_path, privacy=privacy, **settings)
    summary, _ = finish(private, tmp_path / "private")
    ours, theirs = (
        load_checkpoint(tmp_path / name / "final.safetensors").state for name in ("private", "open")
    )
    for key, tensor in theirs.params.items():
        assert (ours.params[key] - tensor).abs().max() < 1e-5
    shifts = [
        RunFolder(tmp_path / name).read_json("scores.json")["final"]["operating_point"]
        for name in ("private", "open")
    ]
    assert shifts[0]["logit_shift"] == shifts[1]["logit_shift"]
    # Every client has the sums that the server has, and the journal of a resumed run knows them.
    audit = AuditFile.read(tmp_path / "private")
    secrets = load_secrets(secrets_path(tmp_path / "private" / "parties", 1))
    assert secrets.sums == audit.sums
    assert audit.measured[NAME].sum() == audit.sums.samples * audit.measured[NAME].shape[1]
    records = run(private, tmp_path / "part")
    next(records)
    records.close()
    assert finish(private, tmp_path / "part", resume=True)[0]["sha256"] == summary["sha256"]


@pytest.mark.parametrize("stage", ["commit", "keys", "masked", "unmask"])
def test_the_sum_is_exact_and_over_those_who_stayed(stage):
    federation = Federation(build_method("fedir", {}))
    statistics = federation.sum_statistics(lost=[(stage, 3)])
    clients = statistics.sums.clients
    assert (3 in clients) == (stage == "unmask")
    np.testing.assert_array_equal(statistics.measured[NAME], counts_of(federation, clients))


def test_a_client_that_received_other_counts_makes_the_sum_noise(monkeypatch):
    """The counts of the confirmed sums, and those that a round broadcasts, are in the view."""

    def attempt(lie):
        federation = Federation(build_method("fedir", {}))
        secure_round = federation.secure_round()
        lie(federation)
        server = secure_round.server_steps.begin(federation.first)
        return secure_round(1, federation.first, everyone(), server)

    def other_sums(federation):
        victim = federation.clients[2]
        told = victim.secrets.sums
        changed = replace(told, measured=(told.measured[0] + 1, *told.measured[1:]))
        victim.statistics = replace(
            victim.statistics, secrets=replace(victim.secrets, sums=changed)
        )

    def other_broadcast(federation):
        honest = SimulatedTransport._view

        def view(self, client):
            if client.contributor.info.client != 2 or self.training is None:
                return honest(self, client)
            cases = {name: tensor + 1 for name, tensor in self.training.broadcast.items()}
            training = RoundTraining(federation.engine, self.training.state, 1, 0, cases)
            return honest(replace(self, training=training), client)

        monkeypatch.setattr(SimulatedTransport, "_view", view)

    for lie in (other_sums, other_broadcast):
        with pytest.raises(PrivacyError, match="add up to noise"):
            attempt(lie)
        # Without views in the keys the lie would go unnoticed.
        monkeypatch.undo()
        with monkeypatch.context() as patch:
            patch.setattr(simulated, "view_digest", lambda *told: "")
            attempt(lie)


def test_a_client_refuses_sums_of_another_length_or_beyond_what_clients_can_measure():
    federation = Federation(build_method("fedir", {}))
    told = federation.sum_statistics().sums
    terms = federation.agreement.terms
    check_plausible(told, terms)
    for wrong in (-1, CLIENTS * MOST_MEASURED + 1):
        with pytest.raises(PrivacyError, match="what 5 clients measured"):
            check_plausible(replace(told, measured=(wrong, *told.measured[1:])), terms)
    own = federation.clients[0].contributor
    negative = Contributor(own.info, own.agreement, {NAME: np.array([-1])})
    with pytest.raises(PrivacyError, match="is not from 0 to"):
        negative.statistics()


def test_more_cases_than_samples_are_refused():
    counts = {NAME: np.array([[3, 2], [2, 3]])}
    check_label_counts(counts, 5)
    with pytest.raises(PrivacyError, match="more cases of a class than their 4 samples"):
        check_label_counts(counts, 4)


def test_what_is_measured_is_one_row_in_the_order_of_names():
    like = {"b": np.zeros((2, 2), np.int64), "a": np.zeros(1, np.int64)}
    found = split_measured(Sums(1, 1.0, (0, 1, 2), (7, 1, 2, 3, 4)).measured, like)
    assert {name: values.tolist() for name, values in found.items()} == {
        "a": [7],
        "b": [[1, 2], [3, 4]],
    }
    assert torch.from_numpy(found["b"]).dtype == torch.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {"name": "fedir"}}, "dp is not possible with FedIR"),
        ({"evaluation": {"logit_adjustment": True}}, "dp and evaluation.logit_adjustment exclude"),
    ],
)
def test_differential_privacy_covers_no_label_counts(tmp_path, changes, message):
    recipe = small_recipe(tmp_path, privacy="masked", dp={"clip": 1.0, "noise": 1.0}, **changes)
    with pytest.raises(RecipeError, match=message):
        check_recipe(recipe)
