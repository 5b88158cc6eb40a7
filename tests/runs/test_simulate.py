from fedbb.data.registry import load_dataset
from fedbb.methods import fedbb, moon
from fedbb.partition.registry import Rule
from fedbb.rounds.loop import Schedule
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.runs.simulate import simulate
from fedbb.state import digest
from fedbb.training.config import LocalConfig
from helpers.small_run import small_recipe
from helpers.toy import toy_dataset


def test_a_simulation_gives_the_bits_of_the_same_recipe(tmp_path):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    dataset = load_dataset("npz", path=tmp_path / "small.npz")
    local, schedule = LocalConfig(batch_size=8, lr=0.05), Schedule(number=4)
    *_, last = simulate(dataset, Rule("even", clients=3), fedbb(), schedule, local=local)
    summary = RunFolder(tmp_path / "run").read_json("summary.json")
    assert digest(last.state) == summary["sha256"]


def test_a_method_that_needs_a_head_gets_one():
    rounds = simulate(toy_dataset(), Rule("even", clients=2), moon(), Schedule(number=2))
    assert any("projection" in name for name in list(rounds)[-1].state.params)


def test_workers_change_no_bit_of_a_simulation():
    ends = []
    for workers in (0, 2):
        rounds = simulate(
            toy_dataset(), Rule("even", clients=3), moon(), Schedule(number=2), workers=workers
        )
        ends.append(digest(list(rounds)[-1].state))
    assert ends[0] == ends[1]
