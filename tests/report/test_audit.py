import json

import pytest

from fedbb.errors import RunError
from fedbb.report.audit import audit_run
from fedbb.report.results import read_run
from helpers.hidden_runs import hide
from helpers.run_builder import Sketch, build, write


def values(audit, what):
    return [seen.value for seen in audit.seen if seen.what == what]


def test_of_an_open_run_the_server_saw_sizes_dispersions_and_every_model(tmp_path):
    path = build(tmp_path / "run", Sketch("fedbb", clients=3, rounds=2))
    audit = audit_run(path)
    clients = read_run(path).federation.known
    assert audit.privacy == "none"
    assert values(audit, "samples") == [client.samples for client in clients]
    assert values(audit, "dispersion R") == [client.dispersion for client in clients]
    assert len(values(audit, "model")) == len(values(audit, "training loss")) == 6
    assert "The weight of each client" in audit.follows[0]
    assert json.loads(json.dumps(audit.as_json()))["run"] == "run"


def test_r_alone_tells_who_holds_a_single_class(tmp_path):
    path = build(tmp_path / "run", Sketch("fedbb", clients=3, rounds=1))
    federation = json.loads((path / "federation.json").read_text())
    classes = len(federation["classes"])
    federation["clients"][1]["dispersion"] = (classes - 1) ** 0.5 / classes
    write(path / "federation.json", federation)
    assert "Clients that hold one class only: client 1." in audit_run(path).follows


def test_of_a_private_run_the_server_saw_sums(tmp_path):
    path = hide(build(tmp_path / "run", Sketch("fedbb", clients=4, rounds=2)))
    audit = audit_run(path)
    assert audit.privacy == "masked"
    assert values(audit, "samples") == [400]
    assert values(audit, "sum of 1/R") == [20.0]
    assert values(audit, "sum of weights") == [1.0, 1.0]
    assert values(audit, "model") == values(audit, "dispersion R") == []
    text = " ".join(audit.follows)
    assert "100.0 samples on average" in text
    assert "No client's weight" in text


@pytest.mark.parametrize(
    ("gamma", "words"),
    [(1.0, "dispersion R: client 3 0.1000"), (0.0, "samples: client 3 200"), (0.5, None)],
)
def test_groups_that_change_give_a_clients_weight_away_and_the_audit_says_so(
    tmp_path, gamma, words
):
    path = hide(build(tmp_path / "run", Sketch("fedbb", clients=4, rounds=2)))
    content = json.loads((path / "audit.json").read_text())
    content["gamma"] = gamma
    content["rounds"][1] |= {"clients": [0, 1, 2], "weight": 0.5}
    write(path / "audit.json", content)
    text = " ".join(audit_run(path).follows)
    assert "The weight of 1 of 4 clients: client 3 0.5000." in text
    assert words is None or words in text
    assert ("Therefore" in text) == (words is not None)


def test_dropouts_attempts_and_steps_are_listed(tmp_path):
    path = hide(build(tmp_path / "run", Sketch("fednova", clients=4, rounds=1, level=0.6)))
    content = json.loads((path / "audit.json").read_text())
    gone = {"client": 2, "reason": "gave no answer in stage keys"}
    content["rounds"][0] |= {"absent": [gone], "attempts": 2, "steps": 7.5}
    write(path / "audit.json", content)
    audit = audit_run(path)
    assert values(audit, "dropped out") == ["gave no answer in stage keys"]
    assert values(audit, "attempts") == [2]
    assert values(audit, "mean of their steps") == [7.5]


def test_a_folder_that_is_no_run_or_is_damaged_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        audit_run(tmp_path)
    path = hide(build(tmp_path / "run", Sketch("fedbb", clients=4, rounds=1)))
    write(path / "audit.json", {"rounds": []})
    with pytest.raises(RunError, match="damaged or of another kind: KeyError"):
        audit_run(path)


@pytest.mark.parametrize(("left", "words"), [([], "No client's class counts"), ([2], "client 2.")])
def test_sums_of_statistics_and_whose_class_counts_follow_from_them(tmp_path, left, words):
    path = hide(build(tmp_path / "run", Sketch("fedbb", clients=4, rounds=2)))
    content = json.loads((path / "audit.json").read_text())
    everyone = [0, 1, 2, 3]
    content["statistics"]["measured"] = {"label-counts": [[5, 9], [9, 5]], "other": [1, 2, 3]}
    content["measured"] = [
        {"round": 1, "clients": everyone, "statistics": ["embeddings.counts"]},
        {"round": 2, "clients": [k for k in everyone if k not in left], "statistics": ["a", "b"]},
    ]
    write(path / "audit.json", content)
    audit = audit_run(path)
    assert values(audit, "sum of label counts") == ["positive cases 5, 9"]
    assert values(audit, "sum of other") == ["3 numbers"]
    found = values(audit, "sums of statistics of the merged model")
    assert found == ["embeddings.counts", "a, b"]
    (text,) = [text for text in audit.follows if "class counts" in text]
    assert words in text
