import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.merging import average
from fedbb.errors import DivergedError
from fedbb.losses.pnb import PNB
from fedbb.methods import METHODS, Method, build_method, fedavg, fednova, fedprox, moon
from fedbb.records import ClientInfo, ModelState, Task
from fedbb.rounds.loop import Schedule, Start, choose
from fedbb.rounds.round import longest_first
from fedbb.state import digest
from fedbb.training.config import LocalConfig
from helpers.cover import few
from helpers.teachers import taught
from helpers.toy import equal_states, toy_dataset, toy_rounds


def weights_of(finished):
    return np.array([report.weight for report in finished.reports])


@given(st.integers(1, 200), st.floats(0.001, 1.0), st.integers(1, 50), st.integers(0, 5))
def test_chosen_clients_are_distinct_sorted_and_as_many_as_asked(clients, rate, number, seed):
    chosen = choose(clients, rate, number, seed)
    assert len(chosen) == max(1, round(rate * clients))
    assert np.array_equal(chosen, np.unique(chosen))
    assert chosen.min() >= 0
    assert chosen.max() < clients


def test_choices_differ_between_rounds_and_repeat_with_the_seed():
    first, again = (
        [choose(50, 0.2, number, seed=4).tolist() for number in range(1, 9)] for _ in range(2)
    )
    assert first == again
    assert len({tuple(clients) for clients in first}) == len(first)


SUITED = [
    (name, [task for task in Task if build_method(name, {}).supports(task)]) for name in METHODS
]
# One task and share of the clients for each method, in turns; the others are slow. Every method
# and task is in `tests/runs/test_grid_runs.py` too, where runs are resumed to the bit.
CASES = [
    pytest.param(name, task, share, marks=[] if (turn, half) == chosen else [pytest.mark.slow])
    for place, (name, tasks) in enumerate(SUITED)
    for chosen in [(place % len(tasks), place // 2 % 2)]
    for turn, task in enumerate(tasks)
    for half, share in enumerate((1.0, 0.5))
]


@pytest.mark.parametrize(("name", "task", "participation"), few(CASES, 16))
def test_every_method_runs_and_repeats_to_the_bit(name, task, participation):
    schedule = Schedule(number=3, participation=participation)
    method = build_method(name, {})
    dataset = taught(toy_dataset(task), method)
    one, two = (list(toy_rounds(method, dataset, schedule=schedule, seed=1)) for _ in range(2))
    assert len(one) == 3
    assert digest(one[-1].state) == digest(two[-1].state)
    for first, second in zip(one, two, strict=True):
        assert first.scores["test"].as_json() == second.scores["test"].as_json()
        assert weights_of(first).sum() == pytest.approx(1.0, abs=1e-12)
        assert all(np.isfinite(report.train_loss) for report in first.reports)


@pytest.mark.parametrize("after", [1, 2])
def test_going_on_from_any_round_gives_the_same_bits(after):
    whole = list(toy_rounds(build_method("fedbb", {})))
    start = Start(whole[after - 1].state, after)
    rest = list(toy_rounds(build_method("fedbb", {}), start=start))
    assert [finished.number for finished in rest] == list(range(after + 1, 4))
    assert equal_states(rest[-1].state, whole[-1].state)


def test_fedbb_with_gamma_zero_and_even_weights_is_fedavg_to_the_bit():
    # β = 0 makes every α one half, so μ = 2 gives every case of every class weight one.
    even = build_method("fedbb", {"beta": 0.0, "mu": 2.0, "gamma": 0.0})
    ours, theirs = (list(toy_rounds(method))[-1] for method in (even, fedavg()))
    assert digest(ours.state) == digest(theirs.state)


def test_the_control_takes_the_plain_loss_at_the_step_size_of_pnb():
    plain = list(toy_rounds(build_method("fedavg-scaled", {"beta": 0.0, "mu": 2.0})))[-1]
    assert digest(plain.state) == digest(list(toy_rounds(fedavg()))[-1].state)


def test_weights_of_the_chosen_are_their_shares_of_the_whole():
    method = build_method("cbr", {"gamma": 0.5})
    whole = weights_of(next(toy_rounds(method)))
    schedule = Schedule(number=1, participation=0.67)
    part = next(toy_rounds(method, schedule=schedule, seed=3))
    chosen = [report.client for report in part.reports]
    assert weights_of(part) == pytest.approx(whole[chosen] / whole[chosen].sum())


def test_clients_train_and_are_merged_by_falling_size_and_told_in_order():
    trained = []

    def watch(current, updates, weights):
        updates = list(updates)
        trained.append([update.client for update in updates])
        return average(current, updates, weights)

    finished = next(toy_rounds(Method("watched", merge=watch)))
    assert trained == [[2, 1, 0]]
    assert [report.client for report in finished.reports] == [0, 1, 2]
    assert weights_of(finished).tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=9))
def test_equal_clients_keep_their_order(sizes):
    infos = [ClientInfo(client, samples) for client, samples in enumerate(sizes)]
    turns = longest_first(np.arange(len(sizes)), infos)
    assert [(-sizes[client], client) for client in turns] == sorted(
        (-samples, client) for client, samples in enumerate(sizes)
    )


def test_one_round_of_a_loop_by_hand_gives_the_same_merge():
    seen = []

    def watch(current, updates, weights):
        seen.extend(updates)
        return average(current, seen, weights)

    finished = next(toy_rounds(Method("watched", merge=watch)))
    sizes = np.array([30, 20, 10]) / 60
    for name, tensor in finished.state.params.items():
        parts = [update.state.params[name].double() for update in seen]
        expected = sum(size * part for size, part in zip(sizes, parts, strict=True))
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=1e-7)


def test_a_merged_model_with_outputs_that_overflow_stops_the_run_by_round():
    def blow_up(current, updates, weights):
        merged = next(iter(updates)).state
        params = {name: tensor * 1e30 for name, tensor in merged.params.items()}
        return ModelState(params, merged.buffers)

    method = Method("blow up", merge=blow_up)
    with pytest.raises(DivergedError, match="round 1: the merged model"):
        list(toy_rounds(method))


def test_a_loss_spec_is_bound_anew_to_every_clients_counts():
    seen = []

    class Spy(PNB):
        def bind(self, counts, task):
            seen.append(tuple(counts.positive))
            return super().bind(counts, task)

    list(toy_rounds(Method("spy", loss=Spy()), schedule=Schedule(number=1)))
    assert len(set(seen)) == 3
    assert [sum(counts) for counts in seen] == [30, 20, 10]


def test_fedprox_without_strength_is_fedavg_to_the_bit():
    ours, theirs = (list(toy_rounds(m))[-1] for m in (fedprox(mu=0.0), fedavg()))
    assert digest(ours.state) == digest(theirs.state)


def test_moon_without_strength_is_fedavg_with_the_head_to_the_bit():
    ours, theirs = (list(toy_rounds(m, projection=True))[-1] for m in (moon(mu=0.0), fedavg()))
    assert digest(ours.state) == digest(theirs.state)


def test_fednova_with_equal_clients_is_fedavg_to_the_bit():
    # Batches as large as a client make one step an epoch everywhere.
    plan = LocalConfig(batch_size=30, lr=0.1)
    ours, theirs = (list(toy_rounds(m, plan=plan))[-1] for m in (fednova(), fedavg()))
    assert digest(ours.state) == digest(theirs.state)
    unequal = list(toy_rounds(fednova()))[-1]
    assert digest(unequal.state) != digest(list(toy_rounds(fedavg()))[-1].state)


SCORES = st.lists(st.sampled_from([-np.inf, 0.1, 0.2, 0.3, 0.4]), max_size=12)


@given(SCORES, st.integers(1, 5))
def test_a_run_is_out_of_patience_after_so_many_rounds_without_a_better_score(scores, patience):
    best, since = -np.inf, 0
    for number, score in enumerate(scores):
        best, since = (score, 0) if number == 0 or score > best else (best, since + 1)
    stopped = Schedule(number=20, patience=patience).stopped_by(scores)
    assert (stopped == "patience") == (since >= patience)
    assert Schedule(number=20).stopped_by(scores) is None


@given(SCORES, st.sampled_from([0.2, 0.25, 0.4]))
def test_a_run_has_reached_its_target_once_a_score_is_as_high(scores, target):
    stopped = Schedule(number=20, patience=20, target=target).stopped_by(scores)
    assert (stopped == "target") == any(score >= target for score in scores)


def test_the_last_round_is_no_early_stop():
    schedule = Schedule(number=3, patience=1, target=0.5)
    assert schedule.stopped_by([0.6, 0.6]) == "target"
    assert schedule.stopped_by([0.6, 0.6, 0.6]) is None
