import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.recipes.grid import read_grid, select
from fedbb.runs.cost_estimate import Estimate, RemainingTime, estimate, kind_of, wall_time
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.runs.scheduler import EventKind, RunEvent
from helpers.small_grid import write, write_grid

pieces = st.lists(st.integers(0, 20).map(float), max_size=6)


@pytest.fixture
def grid(tmp_path):
    return read_grid(write_grid(tmp_path))


def begin(cell, out, seconds):
    """Run one round of a cell, and say that it took so long."""
    records = run(cell.recipe.model_copy(update={"engine": "inline"}), out / cell.name)
    record = next(records)
    records.close()
    record["seconds"] = {"train": seconds, "score": 0.0}
    folder = RunFolder(out / cell.name)
    folder.rewind(0)
    folder.commit(record, folder.latest(), best=False)


@given(pieces, st.integers(1, 4))
def test_the_end_lies_between_what_must_be_and_what_one_worker_needs(seconds, workers):
    ends = wall_time(seconds, workers)
    assert max([*seconds, sum(seconds) / workers]) <= ends <= sum(seconds)


@given(pieces)
def test_one_worker_does_one_thing_after_another(seconds):
    assert wall_time(seconds, 1) == sum(seconds)


@given(pieces)
def test_the_longest_first_ends_no_later_than_seven_sixths_of_the_best_on_two_workers(seconds):
    shares = itertools.product((0, 1), repeat=len(seconds))
    best = min(
        max(
            sum(piece for piece, on in zip(seconds, share, strict=True) if on == side)
            for side in (0, 1)
        )
        for share in shares
    )
    assert wall_time(seconds, 2) <= 7 / 6 * best + 1e-9


def test_kinds_differ_by_method_and_not_by_seed_length_or_engine(grid):
    first, second, *others = grid.cells
    assert kind_of(first.recipe) == kind_of(second.recipe)
    longer = first.recipe.model_copy(update={"engine": "inline"}).model_dump()
    longer["rounds"] = {"number": 99}
    assert kind_of(type(first.recipe).model_validate(longer)) == kind_of(first.recipe)
    assert kind_of(first.recipe) not in {kind_of(cell.recipe) for cell in others}


def test_rounds_of_a_cell_tell_what_it_and_its_other_seeds_take(grid, tmp_path):
    chosen = select(grid, ["FedAvg & η = 0.1"])
    begin(chosen.cells[0], tmp_path, seconds=100.0)
    measured = []
    found = estimate(chosen, tmp_path, lambda done, whole: measured.append(whole))
    assert measured == []
    assert found.seconds == {chosen.cells[0].name: 200.0, chosen.cells[1].name: 300.0}
    assert found.wall(1) == 500.0
    assert found.wall(2) == 300.0


def test_kinds_without_rounds_are_measured_once_each(grid, tmp_path):
    measured = []
    found = estimate(grid, tmp_path, lambda done, whole: measured.append((done, whole)))
    assert measured == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert set(found.per_round) == {cell.name for cell in grid.cells}
    assert all(seconds > 0 for seconds in found.per_round.values())
    assert set(found.left.values()) == {3}


def test_ten_times_the_images_cost_several_times_as_much(grid, tmp_path):
    longer = write(
        tmp_path / "longer.toml", "recipe = { local.epochs = 20, rounds.participation = 0.5 }"
    )
    other = select(read_grid(tmp_path / "small.toml", [longer]), ["FedAvg"])
    plain = estimate(select(grid, ["FedAvg"]), tmp_path / "none")
    more = estimate(other, tmp_path / "none")
    # Ten times the images; a busy machine may measure them half or twice as fast.
    assert min(more.per_round.values()) > 2 * min(plain.per_round.values())


def test_what_cannot_be_measured_is_unknown_with_the_reason(grid, tmp_path):
    (tmp_path / "small.npz").unlink()
    found = estimate(grid, tmp_path)
    assert found.seconds == {}
    assert set(found.unknown) == {cell.name for cell in grid.cells}
    assert all("small.npz" in why for why in found.unknown.values())


def test_a_forecast_learns_from_the_rounds_it_hears_of(grid, tmp_path):
    chosen = select(grid, ["FedAvg & η = 0.1"])
    one, two = chosen.cells
    guess = Estimate({one.name: 10.0, two.name: 10.0}, {one.name: 3, two.name: 3}, {})
    remaining = RemainingTime(chosen, guess, workers=1)
    assert remaining.seconds() == 60.0
    remaining.handle(one, RunEvent(tmp_path, EventKind.BEGUN))
    remaining.handle(one, RunEvent(tmp_path, EventKind.ROUND, round=1, seconds=2.0))
    assert remaining.seconds() == (2 + 3) * 2.0
    remaining.handle(one, RunEvent(tmp_path, EventKind.ROUND, round=2, seconds=4.0))
    assert remaining.seconds() == (1 + 3) * 3.0
    remaining.handle(one, RunEvent(tmp_path, EventKind.FAILED, "killed"))
    assert remaining.seconds() == 9.0
    remaining.handle(two, RunEvent(tmp_path, EventKind.FINISHED))
    assert remaining.seconds() == 0.0


def test_an_estimate_of_cells_that_may_stop_early_is_an_upper_bound(grid, tmp_path):
    for cell in grid.cells:
        begin(cell, tmp_path / "out", 2.0)
    assert not estimate(grid, tmp_path / "out").at_most
    path = write_grid(tmp_path)
    text = path.read_text("utf-8").replace("partition = {", "validation = 0.2\npartition = {")
    early = read_grid(write(path, text.replace("number = 3", "number = 3\npatience = 2")))
    begin(early.cells[0], tmp_path / "early", 2.0)
    found = estimate(select(early, ["FedAvg & η = 0.05"]), tmp_path / "early")
    assert found.at_most
    assert list(found.left.values()) == [2, 3]
