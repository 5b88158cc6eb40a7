"""Answers that cannot be true are refused by name, and every one that can be is taken."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fedbb.aggregation.merging import validate_update
from fedbb.errors import ReplyError
from fedbb.methods import fedavg
from fedbb.records import ClientInfo
from fedbb.rounds.replies import (
    MOST_SAMPLES,
    Expected,
    Inbox,
    Reply,
    check_arrays,
    check_client_info,
    check_reply,
    expected_steps,
)
from fedbb.simulation.inline import Inline
from fedbb.state import digest, snapshot, state_from_arrays, state_to_arrays
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import batches
from fedbb.training.loop import effective_steps
from helpers.toy import drop_rows, equal_states, toy_dataset, toy_network, toy_shares

CONFIG = LocalConfig(batch_size=8, lr=0.1, epochs=2)
STATE = snapshot(toy_network())
SAMPLES = 20
INFO = ClientInfo(2, SAMPLES)
EXPECTED = Expected(STATE, INFO, CONFIG, round=3, attempt=2)
WEIGHT, COUNT = "params.first.0.weight", "buffers.first.1.num_batches_tracked"


def entries():
    return {name: array.copy() for name, array in state_to_arrays(STATE).items()}


def reply(arrays=None, **changes):
    facts = {
        "client": 2,
        "round": 3,
        "attempt": 2,
        "steps": 6,
        "train_loss": 0.7,
        "seconds": 1.5,
    }
    return Reply(arrays=entries() if arrays is None else arrays, **{**facts, **changes})


def with_entry(name, array):
    return {**entries(), name: array}


def refuse(given_reply, words, expected=EXPECTED):
    with pytest.raises(ReplyError, match=words) as caught:
        check_reply(given_reply, expected)
    assert str(caught.value).startswith("client 2, round 3: ")
    assert len(str(caught.value)) < 400


def test_an_honest_answer_becomes_the_update_that_was_sent():
    dataset = toy_dataset()
    model = toy_network()
    engine = Inline(model, toy_shares(dataset), fedavg(), CONFIG)
    job = TrainJob(2, 3, 0, snapshot(model))
    (update,) = engine.train([job])
    info = engine.client_infos()[2]
    sent = Reply(
        2, 3, 1, state_to_arrays(update.state), update.steps, update.train_loss, update.seconds
    )
    taken = check_reply(sent, Expected(job.state, info, CONFIG, round=3))
    assert digest(taken.state) == digest(update.state)
    assert (taken.steps, taken.effective_steps) == (update.steps, update.effective_steps)
    assert taken.train_loss == update.train_loss


def test_the_servers_own_reckoning_replaces_the_step_mass():
    assert check_reply(reply(), EXPECTED).effective_steps == effective_steps(6, CONFIG)


@given(
    samples=st.integers(1, 40),
    plan=st.builds(
        LocalConfig,
        epochs=st.integers(1, 3),
        batch_size=st.integers(1, 12),
        drop_last=st.booleans(),
        accumulate=st.integers(1, 4),
        augment=st.just(False),
    ),
)
def test_expected_steps_are_those_that_training_takes(samples, plan):
    dataset = drop_rows(toy_dataset(), range(samples))
    (share,) = toy_shares(dataset, clients=1)
    job = TrainJob(0, 1, 0, STATE)
    taken = 0
    for epoch in range(plan.epochs):
        shown = len(list(batches(share, job, plan, epoch)))
        taken += len(range(0, shown, plan.accumulate))
    assert expected_steps(samples, plan) == taken


@pytest.mark.parametrize("count", [2**53, -(2**53), 2**62])
def test_an_integer_that_is_not_exact_as_a_float_is_refused(count):
    refuse(reply(with_entry(COUNT, np.array(count))), f"num_batches_tracked counts to {2**53}")
    assert check_reply(reply(with_entry(COUNT, np.array(2**53 - 1))), EXPECTED)


def test_a_client_without_samples_takes_no_steps():
    assert expected_steps(0, CONFIG) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [WEIGHT, "buffers.first.1.running_var"])
def test_values_that_are_not_finite_are_refused(name, value):
    array = entries()[name]
    array.flat[-1] = value
    refuse(reply(with_entry(name, array)), f"{name} holds values that are not finite")


@given(
    arrays_of.arrays(
        np.float32,
        entries()[WEIGHT].shape,
        elements=st.floats(-1e10, 1e10, width=32, allow_subnormal=True)
        | st.sampled_from([-0.0, 1e-45, -1e-45]),
    )
)
def test_any_finite_values_pass_to_the_bit(array):
    taken = check_reply(reply(with_entry(WEIGHT, array)), EXPECTED).state
    assert taken.params["first.0.weight"].numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize("name", [WEIGHT, "buffers.first.1.running_mean"])
def test_finite_values_that_would_overflow_are_refused(name):
    array = entries()[name]
    array[...] = 3e38
    refuse(reply(with_entry(name, array)), f"{name} holds values beyond .* overflow")


def test_a_count_too_large_to_count_on_is_refused():
    huge = np.array(2**62, dtype=np.int64)
    refuse(reply(with_entry(COUNT, huge)), f"{COUNT} counts")


SHAPE = entries()[WEIGHT].shape


@pytest.mark.parametrize(
    "array",
    [
        np.ones((1,), np.float32),
        np.ones((), np.float32),
        np.ones((0,), np.float32),
        np.ones(SHAPE[::-1], np.float32),
        np.ones((1, *SHAPE), np.float32),
        np.ones(math.prod(SHAPE), np.float32),
    ],
    ids=["one", "0-d", "empty", "transposed", "one more axis", "flat"],
)
def test_another_shape_is_refused_even_if_it_could_be_broadcast(array):
    refuse(reply(with_entry(WEIGHT, array)), f"{WEIGHT} has shape")


@given(arrays_of.array_shapes(min_dims=0, max_dims=5, max_side=16))
def test_only_one_shape_passes(shape):
    sent = reply(with_entry(WEIGHT, np.zeros(shape, np.float32)))
    if shape == SHAPE:
        check_reply(sent, EXPECTED)
    else:
        refuse(sent, "has shape")


@pytest.mark.parametrize(
    "kind", ["f8", "f2", "i4", "u1", "?", "c8", "O", "U4", "S4", ">f4", "M8[s]", "f4,f4"]
)
def test_another_type_is_refused(kind):
    array = np.zeros(SHAPE, dtype=np.dtype(kind))
    refuse(reply(with_entry(WEIGHT, array)), f"{WEIGHT} has type")


@pytest.mark.parametrize("value", [None, [1.0], 1.0, torch.ones(3), np.ma.ones(SHAPE), "x" * 999])
def test_what_is_no_array_is_refused(value):
    refuse(reply(with_entry(WEIGHT, value)), f"{WEIGHT} is a .*, not an array")


def test_a_whole_number_is_no_float_and_a_float_is_no_whole_number():
    refuse(reply(with_entry(COUNT, np.array(1.0))), f"{COUNT} has type")
    refuse(reply(with_entry(COUNT, np.array([1]))), f"{COUNT} has shape")


def test_missing_extra_and_renamed_entries_are_refused_and_named():
    lacking = entries()
    del lacking[WEIGHT]
    refuse(reply(lacking), f"misses '{WEIGHT}'")
    refuse(reply(with_entry("params.more", np.ones(2))), r"adds 'params\.more'")
    renamed = {**lacking, "params.first.0.wheight": entries()[WEIGHT]}
    refuse(reply(renamed), "misses")
    refuse(reply({}), r"misses .* and \d+ more")
    refuse(reply({**entries(), **{f"{n}" * 99: np.ones(1) for n in range(9)}}), r"and 6 more")


def test_a_buffer_does_not_pass_for_a_parameter():
    moved = entries()
    moved["params.first.1.running_mean"] = moved.pop("buffers.first.1.running_mean")
    refuse(reply(moved), r"misses 'buffers\.first\.1\.running_mean'")


@given(st.permutations(sorted(entries())))
def test_the_order_of_entries_does_not_matter(names):
    shuffled = {name: entries()[name] for name in names}
    assert equal_states(check_reply(reply(shuffled), EXPECTED).state, STATE)


WRONG_COUNTS = [0, -1, 5, 7, 2**63, 10**400, 6.0, 1.5, math.nan, None, True, "6", [6], np.int64(6)]


@pytest.mark.parametrize("steps", WRONG_COUNTS, ids=lambda steps: str(steps)[:12])
def test_steps_must_be_those_the_samples_make(steps):
    refuse(reply(steps=steps), "steps is .*, not 6 as 20 samples make")


@pytest.mark.parametrize("loss", [math.nan, math.inf, None, True, 1, "0.7", [0.7]])
def test_a_loss_must_be_a_finite_number(loss):
    refuse(reply(train_loss=loss), "train_loss is .*, not a finite number")


@pytest.mark.parametrize("seconds", [math.nan, -1.0, None, 3])
def test_seconds_must_be_a_time(seconds):
    refuse(reply(seconds=seconds), "seconds is ")


@pytest.mark.parametrize(("number", "attempt"), [(2, 2), (2, 1), (3, 1), (4, 2), (0, 0)])
def test_an_answer_to_another_attempt_is_late(number, attempt):
    refuse(reply(round=number, attempt=attempt), "late: it replies to round")


@pytest.mark.parametrize("client", [0, 1, 3, -2])
def test_an_answer_in_anothers_name_is_refused(client):
    refuse(reply(client=client), "client is .*, the number of another")


@pytest.mark.parametrize("field", ["client", "round", "attempt"])
@pytest.mark.parametrize("value", [None, True, 2.0, "2"])
def test_whose_answer_it_is_must_be_told_in_whole_numbers(field, value):
    refuse(reply(**{field: value}), f"{field} is .*, not an integer")


def test_a_second_answer_is_a_duplicate_and_a_bad_first_one_is_final():
    inbox = Inbox({2: EXPECTED})
    inbox.take(2, reply())
    with pytest.raises(ReplyError, match=r"client 2, round 3: duplicate"):
        inbox.take(2, reply())
    inbox = Inbox({2: EXPECTED})
    with pytest.raises(ReplyError, match="steps"):
        inbox.take(2, reply(steps=1))
    with pytest.raises(ReplyError, match="duplicate"):
        inbox.take(2, reply())


def test_a_bound_refuses_whoever_moved_further_all_parameters_together():
    moved = entries()
    moved[WEIGHT].flat[0] += 3.0
    moved["params.head.weight"].flat[0] += 4.0
    state = state_from_arrays(moved)
    start = state_from_arrays(entries())
    distance = math.sqrt(
        sum(float(((state.params[n] - start.params[n]).double() ** 2).sum()) for n in start.params)
    )
    assert distance == pytest.approx(5.0, abs=1e-5)

    def bounded(most):
        return Expected(STATE, INFO, CONFIG, 3, 2, max_norm=most)

    check_reply(reply(moved), bounded(5.01))
    refuse(reply(moved), "the norm of its update is 5, and 4.9 is allowed", bounded(4.9))
    refuse(reply(with_entry(WEIGHT, np.full(SHAPE, 1e30, np.float32))), "overflow", bounded(1.0))


@pytest.mark.parametrize("name", [WEIGHT, "buffers.first.1.running_mean"])
def test_a_bound_means_what_it_means_in_a_simulation(name):
    moved = entries()
    moved[name].flat[0] += 100
    expected = Expected(STATE, INFO, CONFIG, 3, 2, max_norm=1.0)
    told = validate_update(STATE, state_from_arrays(moved), 1.0)
    if told is None:
        check_reply(reply(moved), expected)
    else:
        refuse(reply(moved), told, expected)


def test_a_negative_variance_is_refused():
    name = "buffers.first.1.running_var"
    refuse(reply(with_entry(name, -entries()[name])), "negative variance in 'first.1.running_var'")


def test_plain_arrays_of_any_names_can_be_checked():
    like = {"weight": np.zeros((2, 3), np.float32), "steps": np.zeros((), np.int64)}
    check_arrays(like, like, "node 5")
    with pytest.raises(ReplyError, match=r"^node 5: weight has shape \(1,\), not \(2, 3\)$"):
        check_arrays({**like, "weight": np.zeros(1, np.float32)}, like, "node 5")


@pytest.mark.parametrize("dispersion", [0.0, 1e-300, 0.5, 1e300, 5e-324])
def test_a_client_info_with_figures_that_can_be_true_is_taken(dispersion):
    assert check_client_info(0, 0, dispersion, measured=True) == ClientInfo(0, 0, dispersion)
    assert check_client_info(3, MOST_SAMPLES, None, measured=False) == ClientInfo(3, MOST_SAMPLES)


@pytest.mark.parametrize(
    "samples",
    [-1, MOST_SAMPLES + 1, 2**53 - 1, 2**63, 1.5, 2.0, math.nan, None, True, "3"],
    ids=str,
)
def test_a_client_info_with_another_size_is_refused(samples):
    with pytest.raises(ReplyError, match="info of client 4: samples is"):
        check_client_info(4, samples, 0.5, measured=True)


@pytest.mark.parametrize("dispersion", [-1e-9, math.nan, math.inf, None, True, 1, "0.5"], ids=str)
def test_a_client_info_with_another_dispersion_is_refused(dispersion):
    with pytest.raises(ReplyError, match="info of client 4: dispersion is"):
        check_client_info(4, 10, dispersion, measured=True)


def test_a_dispersion_nobody_asked_for_is_refused():
    with pytest.raises(ReplyError, match="not asked for"):
        check_client_info(4, 10, 0.5, measured=False)


@pytest.mark.parametrize("client", [-1, None, True, 1.0, "1"])
def test_a_client_info_without_a_number_is_refused(client):
    with pytest.raises(ReplyError, match="client info: client is"):
        check_client_info(client, 10, None, measured=False)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | arrays_of.arrays(
        arrays_of.scalar_dtypes(), arrays_of.array_shapes(min_dims=0, max_dims=2, max_side=3)
    ),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


@given(
    arrays=st.dictionaries(st.sampled_from(sorted(entries())) | st.text(max_size=4), JUNK),
    facts=st.fixed_dictionaries(
        dict.fromkeys(("client", "round", "attempt", "steps", "train_loss", "seconds"), JUNK)
    ),
    honest=st.booleans(),
)
def test_whatever_comes_is_taken_or_refused_and_never_anything_else(arrays, facts, honest):
    sent = reply({**entries(), **arrays}) if honest else reply(arrays, **facts)
    try:
        check_reply(sent, EXPECTED)
    except ReplyError as error:
        told = str(error)
    else:
        told = EXPECTED.where + ": "
    assert told.startswith("client 2, round 3: ")
