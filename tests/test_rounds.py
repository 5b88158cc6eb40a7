import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import DivergedError
from fedbb.losses.pnb import PNB
from fedbb.methods import METHODS, Method, build_method, fedavg, fednova, fedprox, moon
from fedbb.penalties.contrastive import Contrastive
from fedbb.penalties.proximal import Proximal
from fedbb.records import ModelState, Task
from fedbb.rounds import Schedule, Start, choose
from fedbb.state import digest
from fedbb.training.plan import LocalPlan
from toy import equal_states, toy_dataset, toy_rounds


@given(st.integers(1, 200), st.floats(0.001, 1.0), st.integers(1, 50), st.integers(0, 5))
def test_chosen_clients_are_distinct_sorted_and_as_many_as_asked(clients, rate, number, seed):
    chosen = choose(clients, Schedule(50, rate, seed), number)
    assert len(chosen) == max(1, round(rate * clients))
    assert np.array_equal(chosen, np.unique(chosen))
    assert chosen.min() >= 0
    assert chosen.max() < clients


def test_choices_differ_between_rounds_and_repeat_with_the_seed():
    schedule = Schedule(rounds=9, participation=0.2, seed=4)
    first = [choose(50, schedule, number).tolist() for number in range(1, 9)]
    assert first == [choose(50, schedule, number).tolist() for number in range(1, 9)]
    assert len({tuple(clients) for clients in first}) == len(first)


SUITED = [
    (name, task) for name in METHODS for task in Task if build_method(name, {}).loss.suits(task)
]


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize(("name", "task"), SUITED)
def test_every_method_runs_and_repeats_to_the_bit(name, task, participation):
    schedule = Schedule(rounds=3, participation=participation, seed=1)
    method, dataset = build_method(name, {}), toy_dataset(task)
    one, two = (list(toy_rounds(method, dataset, schedule=schedule)) for _ in range(2))
    assert len(one) == 3
    assert digest(one[-1].state) == digest(two[-1].state)
    for first, second in zip(one, two, strict=True):
        assert first.scores["test"].as_json() == second.scores["test"].as_json()
        assert first.weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert all(np.isfinite(update.train_loss) for update in first.updates)


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
    whole = next(toy_rounds(method)).weights
    schedule = Schedule(rounds=1, participation=0.67, seed=3)
    part = next(toy_rounds(method, schedule=schedule))
    chosen = [update.client for update in part.updates]
    assert part.weights == pytest.approx(whole[chosen] / whole[chosen].sum())


def test_merging_is_in_client_order_whoever_answers_first():
    class Backwards:
        def __init__(self, engine):
            self.engine = engine

        def introduce(self):
            return self.engine.introduce()

        def train(self, jobs):
            return list(self.engine.train(jobs[::-1]))

    import toy
    from fedbb.rounds import federate

    dataset = toy_dataset()
    digests = []
    for wrap in (lambda engine: engine, Backwards):
        model = toy.toy_network()
        engine = wrap(
            toy.Inline(model, toy.toy_shares(dataset), fedavg(), LocalPlan(batch_size=8, lr=0.1))
        )
        scorer = toy.Scorer(model, dataset, {"test": dataset.test})
        start = Start(toy.snapshot(model))
        rounds = federate(engine, fedavg(), start, Schedule(rounds=2), scorer)
        digests.append(digest(list(rounds)[-1].state))
    assert digests[0] == digests[1]


def test_one_round_of_a_loop_by_hand_gives_the_same_merge():
    finished = next(toy_rounds(fedavg()))
    sizes = np.array([10, 20, 30]) / 60
    for name, tensor in finished.state.params.items():
        parts = [update.state.params[name].double() for update in finished.updates]
        expected = sum(size * part for size, part in zip(sizes, parts, strict=True))
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=1e-7)


def test_a_merged_model_with_outputs_that_overflow_stops_the_run_by_round():
    def blow_up(current, updates, weights):
        merged = updates[0].state
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

    list(toy_rounds(Method("spy", loss=Spy()), schedule=Schedule(rounds=1)))
    assert len(set(seen)) == 3
    assert [sum(counts) for counts in seen] == [10, 20, 30]


def test_fedprox_without_strength_is_fedavg_to_the_bit():
    ours, theirs = (list(toy_rounds(m))[-1] for m in (fedprox(Proximal(0.0)), fedavg()))
    assert digest(ours.state) == digest(theirs.state)


def test_moon_without_strength_is_fedavg_with_the_head_to_the_bit():
    ours, theirs = (
        list(toy_rounds(m, projection=True))[-1] for m in (moon(Contrastive(mu=0.0)), fedavg())
    )
    assert digest(ours.state) == digest(theirs.state)


def test_fednova_with_equal_clients_is_fedavg_to_the_bit():
    # Batches as large as a client make one step an epoch everywhere.
    plan = LocalPlan(batch_size=30, lr=0.1)
    ours, theirs = (list(toy_rounds(m, plan=plan))[-1] for m in (fednova(), fedavg()))
    assert digest(ours.state) == digest(theirs.state)
    unequal = list(toy_rounds(fednova()))[-1]
    assert digest(unequal.state) != digest(list(toy_rounds(fedavg()))[-1].state)
