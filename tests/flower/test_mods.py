"""The mod that adds a card to the train replies of apps that are not ours."""

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="needs the extra fedbb[flower]")

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedbb import client_weights, count_labels, dispersion
from fedbb.flower.mods import report_label_statistics
from fedbb.rounds.label_report import SAMPLES, dispersion_key
from helpers.flower_grid import take_identity

LABELS = [0, 0, 0, 1, 2, 2]


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    take_identity(monkeypatch)


def ask(app: ClientApp, kind: str = "train") -> Message:
    message = Message(RecordDict(), dst_node_id=5, message_type=kind)
    return app(message, Context(1, 5, {"site": 3}, RecordDict(), {}))


def make_app(mod, metrics: MetricRecord | None = None) -> ClientApp:
    """Return an app whose every answer holds these metrics."""
    app = ClientApp(mods=[mod])

    def answer(message: Message, context: Context) -> Message:
        records = {} if metrics is None else {"figures": metrics}
        return Message(RecordDict(records), reply_to=message)

    for register in (app.train(), app.train("special"), app.evaluate(), app.query()):
        register(answer)
    return app


def test_a_train_reply_also_tells_samples_and_dispersion_and_nothing_more():
    app = make_app(
        report_label_statistics(lambda context: LABELS, classes=4), MetricRecord({"loss": 0.5})
    )
    (record,) = ask(app).content.values()
    assert dict(record) == {
        "loss": 0.5,
        SAMPLES: 6,
        "fedbb-share-std": pytest.approx(dispersion([3, 1, 2, 0])),
    }


def test_a_reply_without_metrics_gets_a_record_for_the_card():
    content = ask(make_app(report_label_statistics(lambda context: LABELS, classes=3))).content
    assert set(content["metrics"]) == {SAMPLES, "fedbb-share-std"}


def test_a_named_train_stage_is_a_train_stage():
    content = ask(
        make_app(report_label_statistics(lambda context: LABELS, classes=3)), "train.special"
    ).content
    assert content["metrics"][SAMPLES] == 6


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_other_stages_are_left_alone_and_nothing_is_counted_for_them(kind):
    def count(context):
        raise AssertionError("nobody asked for a card")

    assert not ask(make_app(report_label_statistics(count)), kind).content


def test_an_error_reply_passes_as_it_is():
    app = ClientApp(mods=[report_label_statistics(lambda context: LABELS, classes=3)])

    @app.train()
    def fail(message: Message, context: Context) -> Message:
        return Message(Error(1, "no data"), reply_to=message)

    assert ask(app).error.reason == "no data"


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        np.array(LABELS),
        torch.tensor(LABELS),
        count_labels(LABELS, "multiclass", 4),
    ],
    ids=["list", "array", "tensor", "counts"],
)
def test_labels_may_come_in_any_form(labels):
    metrics = ask(make_app(report_label_statistics(lambda context: labels, classes=4))).content[
        "metrics"
    ]
    assert metrics["fedbb-share-std"] == pytest.approx(dispersion([3, 1, 2, 0]))


def test_the_function_is_given_the_nodes_context():
    app = make_app(
        report_label_statistics(lambda context: [0] * context.node_config["site"], classes=2)
    )
    assert ask(app).content["metrics"][SAMPLES] == 3


def test_multi_label_tables_are_counted_with_unknown_labels_left_out():
    table = np.array([[1, 0, np.nan], [1, 1, np.nan], [0, np.nan, np.nan], [1, 0, np.nan]])
    metrics = ask(make_app(report_label_statistics(lambda context: table))).content["metrics"]
    assert metrics[SAMPLES] == 4
    assert metrics["fedbb-share-std"] == pytest.approx(np.std([3 / 4, 1 / 3]))


def test_the_name_of_the_number_tells_its_reading():
    app = make_app(report_label_statistics(lambda context: LABELS, classes=3, reading="count-std"))
    metrics = ask(app).content["metrics"]
    assert metrics[dispersion_key("count-std")] == pytest.approx(np.std([3, 1, 2]))
    assert dispersion_key("share-std") not in metrics


def test_a_client_without_samples_says_so():
    metrics = ask(make_app(report_label_statistics(lambda context: [], classes=3))).content[
        "metrics"
    ]
    assert metrics[SAMPLES] == 0
    assert np.isfinite(metrics["fedbb-share-std"])


def test_class_numbers_need_the_number_of_classes():
    with pytest.raises(ValueError, match="classes="):
        ask(make_app(report_label_statistics(lambda context: LABELS)))


def test_an_unknown_reading_is_refused_when_the_app_is_built():
    with pytest.raises(ValueError, match="reading must be one of"):
        report_label_statistics(lambda context: LABELS, classes=3, reading="middle")


def test_two_cards_make_the_weights_of_cbr():
    tables = {0: LABELS, 1: [0, 1, 1, 2]}
    infos = [
        ask(
            make_app(report_label_statistics(lambda context, site=site: tables[site], classes=3))
        ).content
        for site in tables
    ]
    spread = np.array([info["metrics"]["fedbb-share-std"] for info in infos])
    weights = (1 / spread) / (1 / spread).sum()
    assert weights == pytest.approx(client_weights([[3, 1, 2], [1, 2, 1]]))
