"""Client-balanced weighting around Flower's strategies, with replies nobody vouches for."""

import io
import logging
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra fedbb[flower]")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from fedbb import client_weights
from fedbb.aggregation.merging import ClientBalanced
from fedbb.errors import DivergedError
from fedbb.flower.strategy import ClientBalancedStrategy, weight_key
from fedbb.imbalance import dispersion
from fedbb.rounds.label_report import SAMPLES, dispersion_key
from helpers.cover import few
from helpers.flower_grid import OwnGrid, take_identity


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    take_identity(monkeypatch)


COUNTS = {11: [50, 40, 30], 12: [5, 5, 90], 13: [20, 25, 15], 14: [300, 3, 3]}
NODES = tuple(COUNTS)
BAD = 12
START = {
    "weight": np.zeros((2, 3), np.float32),
    "bias": np.zeros(3, np.float32),
    "seen": np.array(7, np.int64),
}

Spoil = Callable[[RecordDict], object]


def trained(node: int) -> dict[str, np.ndarray]:
    """Return what a node makes of the start, other numbers at every node."""
    rng = np.random.default_rng(node)
    return {
        "weight": rng.normal(size=(2, 3)).astype(np.float32),
        "bias": rng.normal(size=3).astype(np.float32),
        "seen": np.array(7 + node, np.int64),
    }


def record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def content(node: int) -> RecordDict:
    counts = COUNTS[node]
    metrics = {
        "loss": node / 10,
        "num-examples": sum(counts),
        SAMPLES: sum(counts),
        dispersion_key("share-std"): float(dispersion(counts)),
    }
    return RecordDict({"arrays": record(trained(node)), "metrics": MetricRecord(metrics)})


def answer(spoil: Spoil | None = None, nodes=(BAD,)) -> Callable[[Message], Message]:
    """Return how all nodes answer, some of them not as they should."""

    def reply(message: Message) -> Message:
        node = message.metadata.dst_node_id
        records = content(node)
        if spoil is not None and node in nodes:
            spoil(records)
        return Message(records, reply_to=message)

    return reply


def go_round(strategy: Strategy, reply=None, number=1, start=START):
    """Have a strategy do a round and return arrays and metrics."""
    grid = OwnGrid(reply or answer(), NODES)
    messages = strategy.configure_train(number, record(start), ConfigRecord(), grid)
    arrays, metrics = strategy.aggregate_train(number, grid.send_and_receive(messages))
    return None if arrays is None else opened(arrays), metrics


def opened(arrays: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in arrays.items()}


def table(nodes=NODES) -> list[list[int]]:
    return [COUNTS[node] for node in nodes]


def mean(nodes, weights) -> dict[str, np.ndarray]:
    models = [trained(node) for node in nodes]
    return {
        name: sum(w * model[name].astype(float) for w, model in zip(weights, models, strict=True))
        for name in ("weight", "bias")
    }


def assert_close(found, wanted):
    for name in ("weight", "bias"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-7)


def without(*names: int) -> tuple[int, ...]:
    return tuple(node for node in NODES if node not in names)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_nodes_count_as_cbr_says(gamma):
    strategy = ClientBalancedStrategy(FedAvg(), ClientBalanced(gamma=gamma))
    arrays, _ = go_round(strategy)
    weights = client_weights(table(), gamma=gamma)
    assert strategy.shares == pytest.approx(dict(zip(NODES, weights, strict=True)))
    assert_close(arrays, mean(NODES, weights))


def test_gamma_zero_gives_flowers_own_fedavg():
    ours, _ = go_round(ClientBalancedStrategy(FedAvg(), ClientBalanced(gamma=0.0)))
    theirs, _ = go_round(FedAvg())
    assert_close(ours, theirs)


def test_another_reading_goes_by_another_metric():
    def tell(records):
        del records["metrics"][dispersion_key("share-std")]
        records["metrics"][dispersion_key("count-std")] = 4.0

    strategy = ClientBalancedStrategy(FedAvg(), ClientBalanced(reading="count-std"))
    go_round(strategy, answer(tell, NODES))
    assert strategy.shares == pytest.approx(dict.fromkeys(NODES, 0.25))


def test_integers_keep_their_type_where_flower_makes_floats_of_them():
    ours, _ = go_round(ClientBalancedStrategy(FedAvg()))
    theirs, _ = go_round(FedAvg())
    assert theirs["seen"].dtype == np.float64
    assert ours["seen"].dtype == np.int64
    assert ours["seen"].shape == ()
    assert ours["seen"] == 7 + max(NODES)


def test_the_order_of_replies_changes_no_bit():
    strategy, models = ClientBalancedStrategy(FedAvg()), []
    grid = OwnGrid(answer(), NODES)
    for turn in (1, -1):
        messages = list(strategy.configure_train(1, record(START), ConfigRecord(), grid))
        messages.sort(key=lambda message: turn * message.metadata.dst_node_id)
        arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
        models.append(arrays)
    assert models[0] == models[1]


def test_metrics_are_averaged_with_the_same_weights_and_the_card_is_not_among_them():
    _, metrics = go_round(ClientBalancedStrategy(FedAvg()))
    wanted = client_weights(table()) @ [node / 10 for node in NODES]
    assert dict(metrics) == {"loss": pytest.approx(wanted)}


def test_config_records_of_a_reply_reach_the_strategy():
    def average(contents, key):
        names = {str(records["notes"]["name"]) for records in contents}
        return MetricRecord(
            {"names": len(names), "weight": sum(r["metrics"][key] for r in contents)}
        )

    def note(records):
        records["notes"] = ConfigRecord({"name": str(records["metrics"][SAMPLES])})

    strategy = ClientBalancedStrategy(FedAvg(train_metrics_aggr_fn=average))
    _, metrics = go_round(strategy, answer(note, NODES))
    assert dict(metrics) == {"names": 4, "weight": pytest.approx(1.0)}


@pytest.mark.parametrize("most", [0.2, 0.25, 0.3, 0.4, 0.9])
def test_no_node_counts_more_than_the_most_and_together_they_count_one(most):
    def boast(records):
        records["metrics"][dispersion_key("share-std")] = 1e-300

    strategy = ClientBalancedStrategy(FedAvg(), max_weight=most)
    go_round(strategy, answer(boast))
    assert sum(strategy.shares.values()) == pytest.approx(1.0)
    assert strategy.shares[BAD] == pytest.approx(max(most, 0.25))
    assert max(strategy.shares.values()) <= max(most, 0.25) + 1e-12


def set_array(name: str, values: np.ndarray) -> Spoil:
    return lambda records: records["arrays"].__setitem__(name, Array(values))


def set_bytes(name: str, data: bytes, stype: str = "numpy.ndarray") -> Spoil:
    raw = Array(dtype="float32", shape=(3,), stype=stype, data=data)
    return lambda records: records["arrays"].__setitem__(name, raw)


def set_metric(name: str, value) -> Spoil:
    return lambda records: records["metrics"].__setitem__(name, value)


def remove(part: str, name: str) -> Spoil:
    return lambda records: records[part].__delitem__(name)


def saved(values, **options) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, **options)
    return stream.getvalue()


def archive() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, bias=np.zeros(3, np.float32))
    return stream.getvalue()


def boundless() -> bytes:
    """Return bytes that claim to be an array of four terabytes."""
    honest, claimed = b"(3,), }            ", b"(1000000000000,), }"
    assert len(honest) == len(claimed)
    data = saved(np.zeros(3, np.float32))
    assert honest in data
    return data.replace(honest, claimed)


def repeat(part: str) -> Spoil:
    return lambda records: records.__setitem__("again", records[part].copy())


BIAS, SPREAD = trained(BAD)["bias"], dispersion_key("share-std")
UNUSABLE = {
    "nan": (set_array("bias", np.full(3, np.nan, np.float32)), "bias"),
    "infinite": (set_array("weight", np.full((2, 3), -np.inf, np.float32)), "weight"),
    "overflowing": (set_array("bias", np.full(3, 3e38, np.float32)), "overflow"),
    "one value": (set_array("bias", np.zeros(1, np.float32)), "bias"),
    "no dimension": (set_array("bias", np.array(0, np.float32)), "bias"),
    "a dimension more": (set_array("seen", np.array([7])), "seen"),
    "empty": (set_array("bias", np.zeros(0, np.float32)), "bias"),
    "transposed": (set_array("weight", np.zeros((3, 2), np.float32)), "weight"),
    "doubles": (set_array("bias", BIAS.astype(np.float64)), "bias"),
    "halves": (set_array("bias", BIAS.astype(np.float16)), "bias"),
    "big-endian": (set_array("bias", BIAS.astype(">f4")), "bias"),
    "integers": (set_array("bias", BIAS.astype(np.int32)), "bias"),
    "counter as float": (set_array("seen", np.array(7.0)), "seen"),
    "pickle": (set_bytes("bias", saved(np.array([{}] * 3), allow_pickle=True)), "bias"),
    "archive": (set_bytes("bias", archive()), "bias"),
    "truncated": (set_bytes("bias", saved(BIAS)[:-2]), "bias"),
    "prolonged": (set_bytes("bias", saved(BIAS) + b"more"), "bias"),
    "claimed terabytes": (set_bytes("bias", boundless()), "bias"),
    "no bytes": (set_bytes("bias", b""), "bias"),
    "another format": (set_bytes("bias", saved(BIAS), stype="pickle"), "bias"),
    "missing array": (remove("arrays", "bias"), "bias"),
    "extra array": (set_array("more", np.zeros(3, np.float32)), "more"),
    "two array records": (repeat("arrays"), "ArrayRecord"),
    "no array record": (lambda records: records.__delitem__("arrays"), "ArrayRecord"),
    "two metric records": (repeat("metrics"), "MetricRecord"),
    "no metric record": (lambda records: records.__delitem__("metrics"), "MetricRecord"),
    "no card": (remove("metrics", SAMPLES), "report_label_statistics"),
    "no dispersion": (remove("metrics", SPREAD), "report_label_statistics"),
    "negative count": (set_metric(SAMPLES, -100), "samples"),
    "zero count": (set_metric(SAMPLES, 0), "no samples"),
    "huge count": (set_metric(SAMPLES, 10**18), "samples"),
    "broken count": (set_metric(SAMPLES, 1.5), "samples"),
    "nan count": (set_metric(SAMPLES, float("nan")), "samples"),
    "counts": (set_metric(SAMPLES, [1, 2]), "samples"),
    "nan dispersion": (set_metric(SPREAD, float("nan")), "dispersion"),
    "infinite dispersion": (set_metric(SPREAD, float("inf")), "dispersion"),
    "negative dispersion": (set_metric(SPREAD, -0.1), "dispersion"),
    "dispersions": (set_metric(SPREAD, [0.1, 0.2]), "dispersion"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_reply_that_cannot_be_used_is_left_out_by_name_and_the_others_make_up_for_it(
    kind, caplog
):
    spoil, field = UNUSABLE[kind]
    strategy = ClientBalancedStrategy(FedAvg())
    arrays, _ = go_round(strategy, answer(spoil))
    assert_close(arrays, mean(without(BAD), client_weights(table(without(BAD)))))
    assert sum(strategy.shares.values()) == pytest.approx(1.0)
    assert arrays["seen"] == 7 + max(NODES)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith(f"round 1: node {BAD} is left out: ")
    assert field in warning


def test_plain_fedavg_takes_a_nan_into_the_model_and_ours_does_not():
    spoil, _ = UNUSABLE["nan"]
    theirs, _ = go_round(FedAvg(), answer(spoil))
    ours, _ = go_round(ClientBalancedStrategy(FedAvg()), answer(spoil))
    assert np.isnan(theirs["bias"]).all()
    assert np.isfinite(ours["bias"]).all()


def test_plain_fedavg_ends_the_run_over_one_extra_array_and_ours_does_not():
    spoil, _ = UNUSABLE["extra array"]
    with pytest.raises(InconsistentMessageReplies):
        go_round(FedAvg(), answer(spoil))
    arrays, _ = go_round(ClientBalancedStrategy(FedAvg()), answer(spoil))
    assert arrays.keys() == START.keys()


def test_plain_fedavg_divides_by_zero_where_nobody_has_samples_and_ours_keeps_the_model(caplog):
    def empty(records):
        records["metrics"]["num-examples"] = records["metrics"][SAMPLES] = 0

    with pytest.raises(ZeroDivisionError):
        go_round(FedAvg(), answer(empty, NODES))
    assert go_round(ClientBalancedStrategy(FedAvg()), answer(empty, NODES)) == (None, None)
    assert "the model is unchanged" in caplog.text


def test_values_at_the_edge_of_floats_may_count():
    edge = np.array([-0.0, 1e-45, 1e18], np.float32)
    strategy = ClientBalancedStrategy(FedAvg())
    go_round(strategy, answer(set_array("bias", edge)))
    assert BAD in strategy.shares


def test_an_array_in_fortran_order_is_read_as_it_is_meant():
    values = trained(BAD)["weight"]
    found, _ = go_round(
        ClientBalancedStrategy(FedAvg()), answer(set_array("weight", np.asfortranarray(values)))
    )
    assert_close(found, mean(NODES, client_weights(table())))


def test_a_metric_that_only_some_send_is_left_out_of_the_mean_and_nobody_else_is():
    strategy = ClientBalancedStrategy(FedAvg())
    _, metrics = go_round(strategy, answer(set_metric("more", 1.0)))
    assert set(metrics) == {"loss"}
    _, metrics = go_round(strategy, answer(set_metric("loss", [0.1, 0.2])))
    assert set(metrics) == set()
    assert set(strategy.shares) == set(NODES)


def test_a_metric_that_is_not_defined_at_a_node_costs_it_nothing():
    strategy = ClientBalancedStrategy(FedAvg())
    _, metrics = go_round(strategy, answer(set_metric("loss", float("nan"))))
    assert np.isnan(metrics["loss"])
    assert BAD in strategy.shares


def test_an_error_reply_is_left_out_with_its_reason_cut_short(caplog):
    def reply(message):
        if message.metadata.dst_node_id == BAD:
            return Message(Error(1, "no disk\n" + "x" * 5000), reply_to=message)
        return answer()(message)

    strategy = ClientBalancedStrategy(FedAvg())
    go_round(strategy, reply)
    assert set(strategy.shares) == set(without(BAD))
    assert "no disk\\n" in caplog.text
    assert len(caplog.text) < 1000


def test_of_two_replies_of_a_node_the_first_counts_and_a_stranger_does_not(caplog):
    strategy = ClientBalancedStrategy(FedAvg())
    grid = OwnGrid(answer(), without(14))
    messages = list(strategy.configure_train(1, record(START), ConfigRecord(), grid))
    stranger = Message(RecordDict(), dst_node_id=14, message_type="train")
    replies = grid.send_and_receive([*messages, stranger])
    again = grid.send_and_receive(m for m in messages if m.metadata.dst_node_id == BAD)
    arrays, _ = strategy.aggregate_train(1, [*replies, *again])
    assert_close(opened(arrays), mean(without(14), client_weights(table(without(14)))))
    assert f"node {BAD} is left out: duplicate" in caplog.text
    assert "node 14 is left out: it was not asked" in caplog.text


def test_a_node_that_does_not_answer_is_named(caplog):
    strategy = ClientBalancedStrategy(FedAvg())
    grid = OwnGrid(answer(), NODES)
    messages = list(strategy.configure_train(1, record(START), ConfigRecord(), grid))
    here = [message for message in messages if message.metadata.dst_node_id != BAD]
    arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(here))
    assert_close(opened(arrays), mean(without(BAD), client_weights(table(without(BAD)))))
    assert f"round 1: node {BAD} is left out: no reply" in [r.getMessage() for r in caplog.records]


@pytest.mark.parametrize(("quorum", "goes_on"), [(0.5, True), (0.51, False), (0.0, True)])
def test_a_round_needs_its_quorum(quorum, goes_on, caplog):
    spoil, _ = UNUSABLE["nan"]
    strategy = ClientBalancedStrategy(FedAvg(), quorum=quorum)
    arrays, metrics = go_round(strategy, answer(spoil, nodes=(BAD, 14)))
    assert (arrays is not None) == goes_on
    assert (metrics is not None) == goes_on
    assert ("2 of 4 nodes count and 3 are needed" in caplog.text) != goes_on


def test_a_round_of_nobody_leaves_the_model_as_it_was_without_a_warning(caplog):
    strategy = ClientBalancedStrategy(FedAvg(fraction_train=0.0))
    caplog.clear()
    assert go_round(strategy) == (None, None)
    assert not caplog.records


def test_a_node_that_moves_too_far_is_left_out(caplog):
    far = set_array("bias", np.array([3, 4, 0], np.float32))
    near = ClientBalancedStrategy(FedAvg(), max_norm=4.9)
    go_round(near, answer(far))
    assert set(near.shares) == set(without(BAD))
    assert "the norm of its update is" in caplog.text


@pytest.mark.slow
def test_qfedavg_which_takes_no_integers_weighs_by_loss_and_may_diverge():
    def spoil(records):
        del records["arrays"]["seen"]
        records["metrics"]["loss"] = loss

    floats = {name: array for name, array in START.items() if name != "seen"}
    strategy = ClientBalancedStrategy(QFedAvg(client_learning_rate=0.1, train_loss_key="loss"))
    loss = 0.5
    arrays, _ = go_round(strategy, answer(spoil, NODES), start=floats)
    assert {name: array.dtype for name, array in arrays.items()} == dict.fromkeys(floats, "f4")
    loss = float("nan")
    with pytest.raises(DivergedError, match="round 1: the strategy made weight not finite"):
        go_round(strategy, answer(spoil, NODES), start=floats)


@pytest.mark.parametrize(
    "inner",
    few(
        [
            FedAvg(),
            FedProx(proximal_mu=0.1),
            FedAvgM(server_momentum=0.9),
            FedAdam(),
            FedAdagrad(),
            FedYogi(),
            FedMedian(),
            FedTrimmedAvg(),
            Krum(),
            MultiKrum(),
            Bulyan(),
            DifferentialPrivacyClientSideFixedClipping(FedAvg(), 0.1, 1.0, 4),
        ],
        4,
    ),
    ids=lambda inner: type(inner).__name__,
)
def test_every_strategy_can_stand_inside(inner):
    strategy = ClientBalancedStrategy(inner)
    strategy.summary()
    spoil, _ = UNUSABLE["nan"]
    for number in (1, 2):
        arrays, metrics = go_round(strategy, answer(spoil), number=number)
        assert {k: (a.dtype, a.shape) for k, a in arrays.items()} == {
            k: (a.dtype, a.shape) for k, a in START.items()
        }
        assert all(np.isfinite(array).all() for array in arrays.values())
        assert "loss" in metrics


def test_fedavgm_without_momentum_merges_as_fedavg_does():
    averaged, _ = go_round(ClientBalancedStrategy(FedAvg()))
    moved, _ = go_round(ClientBalancedStrategy(FedAvgM(server_momentum=0.0)))
    assert_close(moved, averaged)


def test_a_whole_run_reaches_the_mean_of_the_usable_nodes():
    spoil, _ = UNUSABLE["one value"]

    def reply(message):
        if message.metadata.message_type == "evaluate":
            metrics = MetricRecord({"accuracy": 0.5, "num-examples": 10})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)
        return answer(spoil)(message)

    strategy = ClientBalancedStrategy(FedAvg())
    result = strategy.start(OwnGrid(reply, NODES), record(START), num_rounds=2)
    assert_close(opened(result.arrays), mean(without(BAD), client_weights(table(without(BAD)))))
    assert dict(result.evaluate_metrics_clientapp[2]) == {"accuracy": 0.5}


def test_the_key_to_weigh_by_is_seen_through_wrappers():
    inner = FedAvg(weighted_by_key="size")
    wrapped = DifferentialPrivacyClientSideFixedClipping(inner, 0.1, 1.0, 4)
    assert weight_key(ClientBalancedStrategy(wrapped)) == weight_key(inner) == "size"


@pytest.mark.parametrize(
    "options",
    [
        {"quorum": 1.5},
        {"quorum": float("nan")},
        {"max_weight": 0.0},
        {"max_weight": 2.0},
        {"max_norm": 0.0},
        {"max_norm": float("nan")},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ClientBalancedStrategy(FedAvg(), **options)


def test_something_that_is_no_strategy_is_refused():
    with pytest.raises(TypeError, match="strategy must be a Flower strategy"):
        ClientBalancedStrategy(FedAvg)


def evaluate(strategy: Strategy, metrics: dict[int, dict]) -> MetricRecord | None:
    def reply(message):
        records = {"metrics": MetricRecord(metrics[message.metadata.dst_node_id])}
        return Message(RecordDict(records), reply_to=message)

    grid = OwnGrid(reply, list(metrics))
    messages = strategy.configure_evaluate(1, record(START), ConfigRecord(), grid)
    return strategy.aggregate_evaluate(1, grid.send_and_receive(messages))


def test_evaluation_is_weighed_as_ever():
    metrics = {
        1: {"accuracy": 0.5, "num-examples": 30},
        2: {"accuracy": 1.0, "num-examples": 10},
    }
    ours = evaluate(ClientBalancedStrategy(FedAvg()), metrics)
    assert ours == evaluate(FedAvg(), metrics)
    assert dict(ours) == {"accuracy": pytest.approx(0.625)}


@pytest.mark.parametrize(
    "bad",
    [
        {"accuracy": 0.1},
        {"accuracy": 0.1, "num-examples": 0},
        {"accuracy": 0.1, "num-examples": -30},
        {"accuracy": 0.1, "num-examples": 10**18},
        {"accuracy": 0.1, "num-examples": float("nan")},
        {"accuracy": 0.1, "num-examples": [1, 2]},
    ],
    ids=str,
)
def test_an_evaluation_without_a_usable_weight_is_left_out_by_name(bad, caplog):
    good = {"accuracy": 0.5, "num-examples": 30}
    found = evaluate(ClientBalancedStrategy(FedAvg()), {1: good, 2: bad})
    assert dict(found) == {"accuracy": 0.5}
    assert "round 1: node 2 is left out: num-examples" in caplog.text


def test_evaluations_of_nobody_make_no_metrics():
    empty = {"accuracy": 0.5, "num-examples": 0}
    assert evaluate(ClientBalancedStrategy(FedAvg()), {1: empty, 2: empty}) is None


def test_an_evaluation_metric_that_only_some_send_is_left_out():
    metrics = {
        1: {"accuracy": 0.5, "num-examples": 10},
        2: {"accuracy": 0.7, "num-examples": 10, "auc": 0.9},
    }
    assert set(evaluate(ClientBalancedStrategy(FedAvg()), metrics)) == {"accuracy"}
