import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RunError
from fedbb.methods import build_method
from fedbb.records import ClientFailure
from fedbb.secagg.audit import AuditFile, RoundAudit, begin_audit, solve_weights
from fedbb.secagg.client_secrets import RosterKeys
from helpers.secagg_clients import ENROLMENT, SERVER
from helpers.secagg_federation import CLIENTS, Federation


@pytest.fixture
def audit(tmp_path):
    """The audit of a run in whose statistics client 4 is missing."""
    federation = Federation(build_method("cbr", {"gamma": 0.5}))
    statistics = federation.sum_statistics(lost=[("commit", 4)])
    keys = RosterKeys(SERVER, federation.roster, b"", ENROLMENT.public)
    agreement = federation.clients[0].contributor.agreement
    begin_audit(tmp_path, "run", "masked", keys, (agreement, statistics))
    content = AuditFile.read(tmp_path).content
    assert content["roster"] == federation.roster.digest
    assert content["statistics"]["samples"] == statistics.sums.samples
    assert content["statistics"]["evenness"] == statistics.sums.evenness
    return AuditFile.read(tmp_path)


def test_an_audit_begins_with_what_the_server_saw_before_round_1(audit):
    content, statistics = audit.content, audit.content["statistics"]
    assert (content["format"], content["run"]) == ("fedbb audit 1", "run")
    assert (content["clients"], content["threshold"]) == (CLIENTS, 4)
    assert content["enrolment"] == ENROLMENT.public.hex()
    assert audit.confirmed == {0, 1, 2, 3} == set(statistics["clients"])
    assert statistics["absent"] == [{"client": 4, "reason": "gave no answer in stage commit"}]
    assert {len(text) for text in statistics["commitments"].values()} == {64}
    assert statistics["letters"].keys() == statistics["commitments"].keys()


def test_a_round_is_added_once_and_is_on_disk(audit):
    entry = RoundAudit(1, (0, 1, 2), (ClientFailure(3, "left"),), 2, 0.5, 1.0, 0.1, "ab")
    for _ in range(2):
        audit.add_round(entry)
        audit.add_scores(1, (0, 1, 2), {"test": 60})
    content = AuditFile.read(audit.path.parent).content
    assert content["rounds"] == [entry.as_json()]
    assert entry.as_json()["absent"] == [{"client": 3, "reason": "left"}]
    assert content["scores"] == [{"round": 1, "clients": [0, 1, 2], "samples": {"test": 60}}]


def test_a_damaged_audit_is_refused_by_name(audit):
    audit.path.write_text("{")
    with pytest.raises(RunError, match=r"audit.json cannot be read"):
        AuditFile.read(audit.path.parent)


def test_two_groups_that_differ_in_one_client_tell_its_weight_and_no_others():
    assert solve_weights([(0, 1, 2), (1, 2)], [1.0, 0.7], 3) == {0: pytest.approx(0.3)}


def test_one_group_tells_nobodys_weight_however_often_it_is_summed():
    assert solve_weights([(0, 1, 2, 3)] * 9, [1.0] * 9, 4) == {}


@given(st.integers(3, 8), st.integers(0, 12), st.integers(0, 1000))
def test_only_true_weights_are_found(clients, rounds, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(clients))
    groups = [np.flatnonzero(rng.random(clients) < 0.6).tolist() for _ in range(rounds)]
    sums = [weights[group].sum() for group in groups]
    for client, weight in solve_weights([*groups, range(clients)], [*sums, 1.0], clients).items():
        assert weight == pytest.approx(weights[client], abs=1e-9)
