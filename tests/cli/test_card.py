from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.small_run import small_recipe


def test_a_card_is_printed_or_written(tmp_path, monkeypatch):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    done = fedbb("card", tmp_path / "run", "--license", "mit", monkeypatch=monkeypatch)
    assert done.code == 0
    assert done.out.startswith('---\nlicense: "mit"\n')
    out = tmp_path / "CARD.md"
    words = ("card", tmp_path / "run", "--license", "mit", "--out", out)
    assert fedbb(*words, monkeypatch=monkeypatch).code == 0
    assert out.read_text("utf-8") == done.out


def test_a_folder_without_a_run_is_refused(tmp_path, monkeypatch):
    done = fedbb("card", tmp_path, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "not a run folder" in done.err
