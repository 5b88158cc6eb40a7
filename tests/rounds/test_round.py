"""One round in the open: who counts, how much, and what happens when too few do."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.merging import average, update_norm
from fedbb.aggregation.robust import Krum
from fedbb.errors import QuorumError, RunError, TooFewError
from fedbb.methods import Method, build_method, cbr, fedavg, fednova
from fedbb.records import ClientFailure, ClientInfo
from fedbb.rounds.round import (
    ClipFilter,
    KrumFilter,
    PlainRound,
    RoundPolicy,
    RoundReplies,
    UpdateFilter,
    ValidUpdates,
    accept_all,
    repeat_until_quorum,
)
from fedbb.state import digest
from helpers.states import floats, models, state, update

KRUM = KrumFilter(Krum(1))
MULTI_KRUM = KrumFilter(Krum(1, many=True))


@pytest.mark.parametrize(
    ("defense", "minimum", "validate", "select"),
    [
        ({}, 1, accept_all, accept_all),
        ({"quorum": 0.9, "max_weight": 0.3}, 1, accept_all, accept_all),
        ({"max_norm": 3.0}, 1, ValidUpdates(3.0), accept_all),
        ({"rule": "clip", "max_norm": 0.2}, 1, ValidUpdates(), ClipFilter(0.2)),
        ({"rule": "median", "byzantine": 1}, 3, ValidUpdates(), accept_all),
        ({"rule": "median", "byzantine": 1, "max_norm": 2.0}, 3, ValidUpdates(2.0), accept_all),
        ({"rule": "trimmed-mean", "byzantine": 2}, 5, ValidUpdates(), accept_all),
        ({"rule": "krum", "byzantine": 1}, 5, ValidUpdates(), KRUM),
        ({"rule": "multi-krum", "byzantine": 1}, 5, ValidUpdates(), MULTI_KRUM),
    ],
)
def test_filters_and_minimum_follow_from_the_defense(defense, minimum, validate, select):
    policy = RoundPolicy(**defense)
    assert policy.min_updates == minimum
    assert policy.validate == validate
    assert policy.select == select


START = state([0.0, 0.0, 0.0])


def replies(sent):
    return RoundReplies(
        tuple(each.client for each in sent), iter(sent), (ClientFailure(99, "no answer"),)
    )


def reasons(found):
    return {failure.client: failure.reason for failure in found.failures}


def test_unsound_models_are_left_out_by_name_and_the_rest_stays_in_order():
    sent = [
        update(4, [1, 1, 1]),
        update(2, [np.nan, 1, 1]),
        update(3, [1, 2, 1], variance=-1.0),
        update(0, [8, 8, 8]),
        update(1, [2, 2, 1]),
    ]
    found = ValidUpdates(max_norm=5.0)(START, replies(sent))
    assert found.clients == (4, 1)
    assert [each.client for each in found.updates] == [4, 1]
    told = reasons(found)
    assert list(told) == [99, 2, 3, 0]
    assert "not finite" in told[2]
    assert "negative variance" in told[3]
    assert "is 16, and 5 is allowed" in told[0]


def test_sound_models_all_pass_without_a_bound():
    sent = [update(client, [1e30, 0, 0]) for client in range(3)]
    assert ValidUpdates()(START, replies(sent)).clients == (0, 1, 2)


def test_krum_leaves_out_by_name_with_the_distances():
    sent = [update(client, [client / 10, 0, 0]) for client in range(4)] + [update(4, [9, 9, 9])]
    found = KrumFilter(Krum(1, many=True))(START, replies(sent))
    assert found.clients == (0, 1, 2, 3)
    assert reasons(found)[99] == "no answer"
    assert reasons(found)[4].startswith("left out by multi-krum: ")
    assert reasons(found)[4].count("from its nearest, those kept at most") == 1
    alone = KrumFilter(Krum(1))(START, replies(sent))
    assert len(alone.clients) == 1
    assert set(reasons(alone)) | set(alone.clients) == {0, 1, 2, 3, 4, 99}


@given(models(7), st.permutations(range(7)))
def test_whom_krum_keeps_does_not_depend_on_the_order(values, order):
    sent = [update(client, each) for client, each in enumerate(values)]
    for rule in (Krum(2), Krum(2, many=True)):
        straight = KrumFilter(rule)(START, replies(sent))
        turned = KrumFilter(rule)(START, replies([sent[place] for place in order]))
        assert set(straight.clients) == set(turned.clients)
        assert reasons(straight) == reasons(turned)
        assert [client for client in order if client in straight.clients] == list(turned.clients)


def test_clipping_keeps_everybody_and_works_as_updates_come():
    taken = []

    def coming():
        for client, size in enumerate((1.0, 100.0)):
            taken.append(client)
            yield update(client, [size, 0, 0])

    found = ClipFilter(3.0)(START, RoundReplies((0, 1), coming()))
    assert taken == []
    first, second = found.updates
    assert update_norm(START, first.state) == pytest.approx(np.sqrt(2.0))
    assert update_norm(START, second.state) == pytest.approx(3.0)
    assert (second.steps, second.effective_steps, second.train_loss) == (3, 3.0, 0.5)
    assert found.failures == ()


METHODS = {
    "fedavg": fedavg(),
    "fednova": fednova(),
    "cbr": cbr(),
    "half": build_method("cbr", {"gamma": 0.5}),
}


def model_of(client):
    return [client + 1.0, -2.0 * client, 0.5]


def made_up_infos(sizes):
    return [
        ClientInfo(client, samples, dispersion=0.05 + 0.1 * client)
        for client, samples in enumerate(sizes)
    ]


class Crowd:
    """Clients that answer with their number, unless they are away; it notes who was asked."""

    def __init__(self, away=lambda attempt: ()):
        self.away, self.asked = away, []

    def __call__(self, jobs, attempt):
        self.asked.append((attempt, [job.client for job in jobs]))
        away = set(self.away(attempt))
        there = [job.client for job in jobs if job.client not in away]
        gone = [job.client for job in jobs if job.client in away]
        return RoundReplies(
            tuple(there),
            (update(client, model_of(client)) for client in there),
            tuple(ClientFailure(client, "no answer") for client in gone),
        )


@dataclass(frozen=True)
class FilterPolicy(RoundPolicy):
    """A policy with filters of its own."""

    validate: UpdateFilter = accept_all
    select: UpdateFilter = accept_all


def make_round(method=METHODS["fedavg"], sizes=(10, 20, 30, 40), crowd=None, **policy):
    return PlainRound(crowd or Crowd(), method, made_up_infos(sizes), 0, FilterPolicy(**policy))


def weights_of(result):
    return {report.client: report.weight for report in result.reports}


def everybody(made):
    return made(1, START, np.arange(made.clients))


def test_all_that_are_chosen_count_by_their_weights():
    result = everybody(make_round())
    assert weights_of(result) == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4})
    assert result.failures == ()
    # Σ w·(k + 1) = 0.1 + 0.4 + 0.9 + 1.6
    assert result.state.params["weight"][0].item() == pytest.approx(3.0)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@given(away=st.sets(st.integers(0, 5), max_size=5))
def test_survivors_count_as_their_weights_scaled_to_one(method, away):
    sizes = (10, 20, 30, 40, 7, 7)
    made = make_round(method, sizes, Crowd(lambda attempt: away), quorum=0.01)
    result = everybody(made)
    whole = method.weighting(made_up_infos(sizes))
    alive = sorted(set(range(6)) - away)
    expected = {client: whole[client] / whole[alive].sum() for client in alive}
    assert weights_of(result) == pytest.approx(expected)
    assert [failure.client for failure in result.failures] == sorted(away)
    sent = [update(client, model_of(client)) for client in alive]
    merged = average(START, sent, np.array(list(expected.values())))
    np.testing.assert_allclose(floats(result.state), floats(merged), rtol=1e-6, atol=1e-7)


def test_weights_are_added_up_by_client_and_not_in_the_order_of_the_jobs():
    """A float sum depends on its order, and the jobs are ordered by size."""
    sizes = (14, 27, 28, 31, 36, 46, 48)
    weights = METHODS["fedavg"].weighting(made_up_infos(sizes))[:6]
    assert weights.sum() != weights[::-1].sum()
    result = everybody(make_round(METHODS["fedavg"], sizes, Crowd(lambda attempt: {6})))
    expected = dict(enumerate((weights / weights.sum()).tolist()))
    assert weights_of(result) == expected


@pytest.mark.parametrize("name", ["fedavg", "fednova", "cbr"])
def test_a_round_without_some_is_the_round_of_a_federation_of_the_others(name):
    """For γ of 0 or 1; in between, W is a mix of two shares of the whole (docs/paper-notes.md)."""
    sizes, alive = (10, 20, 30, 40, 7), [0, 2, 3]
    result = everybody(make_round(METHODS[name], sizes, Crowd(lambda attempt: {1, 4})))
    infos = made_up_infos(sizes)
    weights = METHODS[name].weighting([infos[client] for client in alive])
    expected = dict(zip(alive, weights, strict=True))
    assert weights_of(result) == pytest.approx(expected, rel=1e-12)


@given(st.permutations(range(4)), st.sets(st.integers(0, 3), max_size=3))
def test_the_outcome_depends_on_who_is_absent_and_not_on_how(order, away):
    """Away from the start, left out by a screen, or told in another order: the same bits."""

    def screen(current, replies):
        kept = [each for each in replies.updates if each.client not in away]
        left = tuple(ClientFailure(client, "no answer") for client in order if client in away)
        return RoundReplies(tuple(each.client for each in kept), kept, left)

    gone = everybody(make_round(crowd=Crowd(lambda attempt: away), quorum=0.01))
    screened = everybody(make_round(quorum=0.01, validate=screen))
    selected = everybody(make_round(quorum=0.01, select=screen))
    chosen = make_round()(1, START, np.array(sorted(set(range(4)) - away)))
    assert {digest(each.state) for each in (gone, screened, selected, chosen)} == {
        digest(gone.state)
    }
    assert gone.reports == screened.reports == selected.reports == chosen.reports
    assert gone.failures == screened.failures == selected.failures


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@given(numbers=st.permutations(range(5)))
def test_other_numbers_for_the_clients_change_nothing(method, numbers):
    """Renamed clients keep size, dispersion and update."""
    infos = made_up_infos((10, 20, 30, 40, 7))
    renamed = sorted(
        (replace(info, client=numbers[info.client]) for info in infos), key=lambda each: each.client
    )

    def reply(jobs, attempt):
        old = [numbers.index(job.client) for job in jobs]
        sent = [replace(update(client, model_of(client)), client=numbers[client]) for client in old]
        return RoundReplies(tuple(each.client for each in sent), sent)

    before = everybody(PlainRound(Crowd(), method, infos, 0))
    after = everybody(PlainRound(reply, method, renamed, 0))
    np.testing.assert_allclose(floats(after.state), floats(before.state), rtol=1e-6)
    assert {numbers[client]: weight for client, weight in weights_of(before).items()} == (
        pytest.approx(weights_of(after), rel=1e-12)
    )


def test_who_has_no_samples_is_not_asked_and_named():
    crowd = Crowd()
    result = everybody(make_round(sizes=(10, 0, 30, 0), crowd=crowd))
    assert crowd.asked == [(1, [2, 0])]
    assert result.failures == (
        ClientFailure(1, "has no samples"),
        ClientFailure(3, "has no samples"),
    )
    assert weights_of(result) == pytest.approx({0: 0.25, 2: 0.75})


def test_if_nobody_has_samples_the_model_stays_and_all_are_named():
    crowd = Crowd()
    result = make_round(sizes=(0, 0, 5), crowd=crowd)(1, START, np.array([0, 1]))
    assert result.state is START
    assert result.reports == ()
    assert [failure.client for failure in result.failures] == [0, 1]
    assert crowd.asked == []


def test_those_without_samples_and_those_that_fail_are_told_in_order():
    result = everybody(make_round(sizes=(10, 0, 30, 5), crowd=Crowd(lambda attempt: {0})))
    assert result.failures == (ClientFailure(0, "no answer"), ClientFailure(1, "has no samples"))


@pytest.mark.parametrize(
    ("quorum", "asked", "least"),
    [(0.5, 1, 1), (0.5, 4, 2), (0.5, 5, 3), (1.0, 7, 7), (0.01, 9, 1)],
)
def test_a_quorum_is_a_share_of_those_asked_rounded_up(quorum, asked, least):
    assert RoundPolicy(quorum).required(asked) == least


def test_a_rule_may_need_more_than_the_quorum():
    assert RoundPolicy(0.5, rule="krum", byzantine=2).required(9) == 7
    assert RoundPolicy(1.0, rule="krum", byzantine=2).required(9) == 9


def test_a_round_without_a_quorum_is_tried_again():
    crowd = Crowd(lambda attempt: {0, 1, 2} if attempt < 3 else {1})
    result = everybody(make_round(crowd=crowd))
    assert [attempt for attempt, _ in crowd.asked] == [1, 2, 3]
    assert [report.client for report in result.reports] == [0, 2, 3]
    assert result.failures == (ClientFailure(1, "no answer"),)


def test_after_all_attempts_the_run_stops_with_names_and_reasons():
    crowd = Crowd(lambda attempt: {0, 2, 3})
    with pytest.raises(QuorumError) as caught:
        make_round(crowd=crowd, attempts=2)(7, START, np.arange(4))
    told = str(caught.value)
    assert told.startswith("round 7: 1 of 4 clients count and 2 are needed")
    assert "after 2 attempts" in told
    assert "client 0: no answer" in told
    assert "a resumed run continues" in told
    assert len(crowd.asked) == 2


def test_answers_that_a_screen_leaves_out_do_not_make_a_quorum():
    def none(current, replies):
        left = tuple(ClientFailure(client, "is odd") for client in replies.clients)
        return RoundReplies((), (), (*replies.failures, *left))

    with pytest.raises(QuorumError, match="client 3: is odd"):
        everybody(make_round(validate=none, attempts=1))


def test_whom_a_rule_does_not_select_counted_for_the_quorum():
    def first(current, replies):
        kept = [each for each in replies.updates if each.client == 0]
        left = tuple(ClientFailure(client, "not the first") for client in replies.clients if client)
        return RoundReplies((0,), kept, left)

    result = everybody(make_round(quorum=1.0, select=first))
    assert weights_of(result) == {0: 1.0}
    assert [failure.client for failure in result.failures] == [1, 2, 3]


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=8), st.floats(0.05, 1.0))
def test_no_client_counts_more_than_the_cap(sizes, cap):
    weights = weights_of(everybody(make_round(sizes=sizes, max_weight=cap)))
    assert max(weights.values()) <= max(cap, 1 / len(sizes)) * (1 + 1e-9)
    assert sum(weights.values()) == pytest.approx(1.0)


def test_a_liar_who_declares_perfect_evenness_is_held_by_the_cap():
    """R⁻¹ is bounded by the weighting's floor, and what it then owns by the cap."""
    infos = [ClientInfo(client, 100, 0.4) for client in range(9)] + [ClientInfo(9, 100, 0.0)]
    free, held = (
        PlainRound(Crowd(), cbr(), infos, 0, RoundPolicy(max_weight=cap))(1, START, np.arange(10))
        for cap in (1.0, 0.2)
    )
    assert weights_of(free)[9] > 0.9
    assert weights_of(held)[9] == pytest.approx(0.2)


def test_clients_are_asked_and_merged_by_falling_size_and_told_in_order():
    seen = []

    def watch(current, updates, weights):
        kept = list(updates)
        seen.append([each.client for each in kept])
        return average(current, kept, weights)

    crowd = Crowd(lambda attempt: {1})
    result = everybody(make_round(Method("watched", merge=watch), (5, 50, 9, 5), crowd))
    assert crowd.asked == [(1, [1, 2, 0, 3])]
    assert seen == [[2, 0, 3]]
    assert [report.client for report in result.reports] == [0, 2, 3]


def test_updates_are_merged_as_they_come():
    order = []

    def stream(jobs, attempt):
        def updates():
            for job in jobs:
                order.append(f"train {job.client}")
                yield update(job.client, model_of(job.client))

        return RoundReplies(tuple(job.client for job in jobs), updates())

    def watch(current, updates, weights):
        for each in updates:
            order.append(f"merge {each.client}")
            last = each.state
        return last

    everybody(make_round(Method("watched", merge=watch), (2, 1), stream))
    assert order == ["train 0", "merge 0", "train 1", "merge 1"]


def fall_short(number, least=3):
    if number < least:
        raise QuorumError(f"{number} of 3 count")
    return number


def test_an_attempt_is_repeated_until_enough_count():
    assert repeat_until_quorum(fall_short, 3, "round 4") == 3
    with pytest.raises(QuorumError, match=r"round 4: 2 of 3 count, after 2 attempts; .* resumed"):
        repeat_until_quorum(fall_short, 2, "round 4")


def test_only_a_shortage_is_tried_again():
    made = []

    def attempt(number):
        made.append(number)
        raise (TooFewError if number < 3 else RunError)("two stayed")

    with pytest.raises(RunError, match=r"^two stayed$"):
        repeat_until_quorum(attempt, 5, "round 4", shortage=TooFewError)
    assert made == [1, 2, 3]
    with pytest.raises(QuorumError, match="round 4: two stayed, after 2 attempts"):
        repeat_until_quorum(attempt, 2, "round 4", shortage=TooFewError)
