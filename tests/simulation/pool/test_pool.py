"""The pool's bits are the inline engine's, whatever happens to its workers."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from fedbb.errors import DivergedError, RunError
from fedbb.losses.cross_entropy import CrossEntropy
from fedbb.methods import METHODS, Method, build_method, fedavg
from fedbb.records import Task
from fedbb.rounds.loop import Schedule, Start
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.pool import Pool, worker_count
from fedbb.state import digest, snapshot
from fedbb.training.config import LocalConfig, TrainJob
from helpers.cover import few
from helpers.teachers import taught
from helpers.toy import federate, toy_dataset, toy_network, toy_rounds, toy_shares

PLAN = LocalConfig(batch_size=8, lr=0.1)


@dataclass(frozen=True)
class Deadly(CrossEntropy):
    """Ends the process that binds it to a number of samples, once for each mark."""

    marks: Path = Path()
    samples: int = 20

    def bind(self, counts, task):
        marks = sorted(self.marks.iterdir()) if counts.samples == self.samples else []
        if marks:
            marks[0].unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().bind(counts, task)


def marks(folder, number):
    folder.mkdir()
    for name in range(number):
        (folder / str(name)).touch()
    return folder


def pool_rounds(method, folder, task=Task.MULTICLASS, workers=2, plan=PLAN, **network):
    """Return the rounds of the toy federation by a pool."""
    dataset = taught(toy_dataset(task), method)
    model = toy_network(**network)
    torch.set_num_threads(1)
    engine = Inline(model, toy_shares(dataset), method, plan, ClientStateFiles(folder))
    scored = {"test": dataset.test}
    with Pool(engine, scored, batch_size=8, workers=workers) as pool:
        start, schedule = Start(snapshot(model)), Schedule(number=3)
        yield from federate(pool, method, start, schedule, pool)


# One of each way to train and to merge; the others, whose final models test_digests.py compares
# between the engines, are among the slow ones.
TYPICAL = ("fedavg", "fedbb", "fedprox", "moon", "fednova", "fedalign", "fedadam", "scaffold")
SUITED = [
    pytest.param(
        name,
        task,
        marks=[]
        if name == "fedbb" or (name in TYPICAL and task is Task.MULTICLASS)
        else [pytest.mark.slow],
    )
    for name in METHODS
    for task in Task
    if build_method(name, {}).supports(task)
]


@pytest.mark.parametrize(("name", "task"), few(SUITED, 4))
def test_every_method_gives_the_inline_engines_bits(name, task, tmp_path):
    method = build_method(name, {})
    projection = method.needs.projection
    inline = list(toy_rounds(method, taught(toy_dataset(task), method), projection=projection))
    pooled = list(pool_rounds(method, tmp_path, task, projection=projection))
    for ours, theirs in zip(pooled, inline, strict=True):
        assert digest(ours.state) == digest(theirs.state)
        assert ours.scores["test"].as_json() == theirs.scores["test"].as_json()
        facts = ("client", "weight", "steps", "train_loss")
        for one, two in zip(ours.reports, theirs.reports, strict=True):
            assert [getattr(one, fact) for fact in facts] == [getattr(two, fact) for fact in facts]


@pytest.mark.parametrize("workers", [1, 3, 5])
def test_the_number_of_workers_changes_no_bit(workers, tmp_path):
    expected = digest(list(toy_rounds(fedavg()))[-1].state)
    assert digest(list(pool_rounds(fedavg(), tmp_path, workers=workers))[-1].state) == expected


def test_a_worker_that_dies_is_replaced_and_its_client_trained_again(tmp_path):
    method = Method("deadly", loss=Deadly(marks(tmp_path / "marks", 1)))
    ends = list(pool_rounds(method, tmp_path))
    assert list((tmp_path / "marks").iterdir()) == []
    assert digest(ends[-1].state) == digest(list(toy_rounds(fedavg()))[-1].state)


def test_a_client_that_kills_its_worker_twice_stops_the_run_by_name(tmp_path):
    method = Method("deadly", loss=Deadly(marks(tmp_path / "marks", 9)))
    with pytest.raises(
        RunError, match=r"client 1 in round 1 ended its worker process twice .*KILL"
    ):
        list(pool_rounds(method, tmp_path))
    assert len(list((tmp_path / "marks").iterdir())) == 7


def test_an_idle_worker_that_dies_is_replaced(tmp_path):
    expected = digest(list(toy_rounds(fedavg()))[-1].state)
    dataset, model = toy_dataset(), toy_network()
    engine = Inline(model, toy_shares(dataset), fedavg(), PLAN, ClientStateFiles(tmp_path))
    with Pool(engine, {"test": dataset.test}, workers=2) as pool:
        rounds = federate(pool, fedavg(), Start(snapshot(model)), Schedule(number=3), pool)
        next(rounds)
        for worker in pool._pool.workers:
            worker.process.kill()
            worker.process.join()
        assert digest(list(rounds)[-1].state) == expected


def test_what_goes_wrong_in_a_worker_is_told_as_if_it_were_here(tmp_path):
    wild = LocalConfig(batch_size=8, lr=1e30)
    with pytest.raises(DivergedError, match=r"round \d, client \d, method FedAvg") as caught:
        list(pool_rounds(fedavg(), tmp_path, plan=wild))
    assert "in a worker process" in caught.value.__notes__[0]


def test_a_network_that_cannot_be_sent_is_refused(tmp_path):
    dataset, network = toy_dataset(), toy_network()
    network.log = (tmp_path / "log").open("w")
    engine = Inline(network, toy_shares(dataset), fedavg(), PLAN, ClientStateFiles(tmp_path))
    with network.log, pytest.raises(RunError, match=r"cannot be sent to worker .*open files"):
        Pool(engine, {"test": dataset.test}, workers=1)


def test_no_process_is_left_when_the_pool_is_closed_or_a_round_given_up(tmp_path):
    dataset, model = toy_dataset(), toy_network()
    engine = Inline(model, toy_shares(dataset), fedavg(), PLAN, ClientStateFiles(tmp_path))
    with Pool(engine, {"test": dataset.test}, workers=2) as pool:
        numbers = [worker.process.pid for worker in pool._pool.workers]
        state = snapshot(model)
        # Of three jobs the first may be answered last, and then the round would be whole.
        updates = pool.train([TrainJob(number % 3, 1, 0, state) for number in range(90)])
        next(updates)
        updates.close()
        with pytest.raises(RunError, match="ended already"):
            next(pool.train([TrainJob(0, 2, 0, state)]))
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_jobs_may_start_from_different_states_but_have_one_broadcast(tmp_path):
    dataset, model = toy_dataset(), toy_network()
    engine = Inline(model, toy_shares(dataset), fedavg(), PLAN, ClientStateFiles(tmp_path))
    states = [snapshot(toy_network(seed=client)) for client in range(2)]
    jobs = [TrainJob(client, 1, 0, state) for client, state in enumerate(states)]
    expected = [digest(update.state) for update in engine.train(jobs)]
    assert len(set(expected)) == 2
    with Pool(engine, {"test": dataset.test}, workers=1) as pool:
        assert [digest(update.state) for update in pool.train(jobs)] == expected
        others = [replace(job, broadcast={"a.b": torch.zeros(job.client + 1)}) for job in jobs]
        with pytest.raises(ValueError, match="same broadcast"):
            next(pool.train(others))


def test_threads_of_a_client_are_taken_off_the_workers(monkeypatch):
    monkeypatch.setattr("fedbb.simulation.pool.pool.usable_cores", lambda: 8)
    assert worker_count(LocalConfig()) == 8
    assert worker_count(LocalConfig(threads=3)) == 2
    assert worker_count(LocalConfig(threads=16)) == 1
    assert worker_count(LocalConfig(device="cuda:1")) == 1
