import json

from helpers.commands import fedbb
from helpers.rights import denied
from helpers.run_builder import Sketch, build, build_all


def make(root):
    build_all(root, [Sketch(method, seed) for method in ("fedavg", "fedbb") for seed in range(2)])
    build(root / "stopped", Sketch(seed=9, finished=False))


def test_report_writes_a_page_and_tells_the_verdict(tmp_path, monkeypatch):
    make(tmp_path / "runs")
    out = tmp_path / "pages" / "my report.html"
    done = fedbb(
        "report", tmp_path / "runs", "--out", out, "--title", "A <b>", monkeypatch=monkeypatch
    )
    assert done.code == 0
    assert "FedBB is ahead of FedAvg by" in done.out
    assert "stopped: is unfinished: 6 of 6 rounds" in done.out
    assert f"4 runs in {out}" in done.out
    assert "<h1>A &lt;b&gt;</h1>" in out.read_text()


def test_report_as_json_names_page_results_and_what_is_left_out(tmp_path, monkeypatch):
    make(tmp_path / "runs")
    out = tmp_path / "report.html"
    done = fedbb("report", tmp_path / "runs", "-o", out, "--json", monkeypatch=monkeypatch)
    told = json.loads(done.out)
    assert told["page"] == str(out)
    assert [len(one["runs"]) for one in told["comparisons"]] == [4]
    assert told["left_out"] == [
        {"path": str(tmp_path / "runs" / "stopped"), "reason": "is unfinished: 6 of 6 rounds"}
    ]


def test_report_goes_into_the_working_folder_and_can_be_quiet(tmp_path, monkeypatch):
    make(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    done = fedbb("report", "runs", "--quiet", monkeypatch=monkeypatch)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "report.html").exists()


def test_a_folder_without_the_right_to_read_it_is_named(tmp_path, monkeypatch):
    make(tmp_path / "runs")
    closed = tmp_path / "runs" / "stopped"
    out = tmp_path / "report.html"
    with denied(tmp_path / "runs"):
        done = fedbb("report", tmp_path, "--out", out, monkeypatch=monkeypatch)
    assert done.code == 2
    assert f"{tmp_path / 'runs'} cannot be read: Permission denied; give your user" in done.err
    assert "holds no run" not in done.err
    with denied(closed):
        done = fedbb("report", tmp_path, "--out", out, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert f"left out: {closed}: cannot be read: Permission denied" in done.out


def test_a_missing_folder_and_one_without_finished_runs_are_refused(tmp_path, monkeypatch):
    done = fedbb("report", tmp_path / "nowhere", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a folder" in done.err
    done = fedbb("report", tmp_path, "--out", tmp_path / "r.html", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "no finished run to report" in done.err
    assert "holds no run" in done.err
