"""The list of mutants fits the code, so that `make mutants` can run."""

from pathlib import Path

from mutants.run import ROOT, check, read_mutants, read_sources


def test_every_line_occurs_once_and_every_test_exists():
    mutants = read_mutants(Path(__file__).parent / "mutants" / "mutants.toml")
    assert len(mutants) >= 300
    assert check(mutants, read_sources(ROOT)) == []
