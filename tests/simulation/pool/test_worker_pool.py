"""Worker processes: tasks in order, events on the way, crashes, and their end."""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from fedbb.errors import RunError
from fedbb.simulation.pool import process_start
from fedbb.simulation.pool.protocol import ReplyKind, unpack
from fedbb.simulation.pool.worker_pool import WorkerPool


class Speller:
    """Reports every letter of a word, and returns it behind the state; some words are deadly."""

    def __init__(self, number):
        self.number, self.state = number, b""

    def load_state(self, state):
        self.state = state

    def run(self, task, report):
        if task == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "raise":
            raise ValueError("no such word")
        for letter in task:
            report(letter.encode())
        return self.state + task.encode()


class SpellerSetup:
    def open(self, number, connection):
        return Speller(number)


class BrokenSetup:
    def open(self, number, connection):
        raise RunError(f"worker {number} has no dictionary")


class DeadlySetup:
    def open(self, number, connection):
        os.kill(os.getpid(), signal.SIGKILL)


def replies_of(tasks, size=1, setup=SpellerSetup, state=b"", **options):
    with closing(WorkerPool(setup(), size)) as pool:
        return list(pool.run(tasks, state, **options))


def kinds_of(replies, task):
    return [reply.kind for reply in replies if reply.task == task]


def test_one_worker_takes_tasks_in_order_and_reports_on_the_way():
    replies = replies_of(["ab", "c"], state=b"state ")
    assert [(reply.task, reply.kind.name, reply.content) for reply in replies] == [
        (0, "STARTED", b""),
        (0, "EVENT", b"a"),
        (0, "EVENT", b"b"),
        (0, "DONE", b"state ab"),
        (1, "STARTED", b""),
        (1, "EVENT", b"c"),
        (1, "DONE", b"state c"),
    ]


def test_every_task_is_done_once_whatever_the_number_of_workers():
    replies = replies_of(["a", "b", "c", "d", "e"], size=3)
    started = [reply.task for reply in replies if reply.kind is ReplyKind.STARTED]
    assert started == list(range(5))
    for task in range(5):
        assert kinds_of(replies, task) == [ReplyKind.STARTED, ReplyKind.EVENT, ReplyKind.DONE]


@pytest.mark.parametrize("retries", [0, 2])
def test_a_task_that_kills_its_workers_is_given_up_and_the_others_are_done(retries):
    replies = replies_of(["a", "die", "b"], retries=retries)
    assert kinds_of(replies, 1) == [ReplyKind.STARTED] * (1 + retries) + [ReplyKind.CRASHED]
    assert "killed by SIGKILL" in next(
        reply.content.decode() for reply in replies if reply.kind is ReplyKind.CRASHED
    )
    assert kinds_of(replies, 0)[-1] is kinds_of(replies, 2)[-1] is ReplyKind.DONE


def test_no_task_is_to_blame_for_workers_that_died_while_they_were_idle():
    with closing(WorkerPool(SpellerSetup(), 2)) as pool:
        for worker in pool.workers:
            assert worker.connection.poll(60)  # ready, which the pool has not read yet
            worker.process.kill()
            worker.process.join()
        replies = list(pool.run(["ab"], b"", retries=0))
    assert replies[-1].kind is ReplyKind.DONE
    assert replies[-1].content == b"ab"


def test_an_error_of_a_task_comes_back_and_its_worker_goes_on():
    replies = replies_of(["raise", "a"])
    error = next(unpack(reply.content) for reply in replies if reply.kind is ReplyKind.FAILED)
    assert isinstance(error, ValueError)
    assert str(error) == "no such word"
    assert kinds_of(replies, 1)[-1] is ReplyKind.DONE


def test_a_new_state_reaches_workers_that_stay():
    with closing(WorkerPool(SpellerSetup(), 2)) as pool:
        for state in (b"first ", b"second "):
            done = [
                reply for reply in pool.run(["a", "b", "c"], state) if reply.kind.name == "DONE"
            ]
            assert {reply.content for reply in done} == {
                state + word for word in (b"a", b"b", b"c")
            }


def test_released_workers_end_when_no_task_is_left_for_them():
    with closing(WorkerPool(SpellerSetup(), 2)) as pool:
        list(pool.run(["a", "b", "c"], release=True))
        assert pool.workers == []
        assert multiprocessing.active_children() == []
        with pytest.raises(RunError, match="ended already"):
            list(pool.run(["a"]))


def test_a_batch_that_is_given_up_ends_all_workers():
    with closing(WorkerPool(SpellerSetup(), 2)) as pool:
        replies = pool.run(["a", "b", "c"])
        next(replies)
        replies.close()
        assert multiprocessing.active_children() == []


def test_a_set_up_that_fails_says_why():
    with pytest.raises(RunError, match="worker 0 has no dictionary"):
        replies_of(["a"], setup=BrokenSetup)


def test_workers_that_never_start_are_not_replaced_for_ever():
    with pytest.raises(RunError, match=r"end before they can begin \(killed by SIGKILL"):
        replies_of(["a"], setup=DeadlySetup)


def freeze(worker):
    """Stop a process as a debugger or a hanging disk would; it acts on nothing but SIGKILL."""
    os.kill(worker.process.pid, signal.SIGSTOP)
    state = Path(f"/proc/{worker.process.pid}/stat")
    while state.read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


def gone(process):
    return not Path(f"/proc/{process}").exists()


def ctrl_c(after):
    """Send SIGINT to the main thread, whose system calls it interrupts, after some seconds."""
    main = threading.main_thread().ident
    interrupt = threading.Timer(after, signal.pthread_kill, [main, signal.SIGINT])
    interrupt.start()
    return interrupt


@pytest.fixture
def frozen():
    """A pool of three workers that are all frozen in the middle of a batch."""
    pool = WorkerPool(SpellerSetup(), 3)
    list(pool.run(["a", "b", "c"]))
    processes = [worker.process.pid for worker in pool.workers]
    for worker in pool.workers:
        freeze(worker)
    yield pool, processes
    for process in processes:
        if not gone(process):
            os.kill(process, signal.SIGKILL)


def test_frozen_workers_are_killed_within_seconds_all_at_the_same_time(frozen):
    pool, processes = frozen
    begun = time.monotonic()
    pool.close()
    assert time.monotonic() - begun < 4
    assert all(gone(process) for process in processes)


def test_a_second_ctrl_c_leaves_no_frozen_worker_to_wait_for(frozen):
    pool, processes = frozen
    replies = pool.run(["a", "b", "c"])
    interrupts = [ctrl_c(after=1), ctrl_c(after=1.3)]
    with pytest.raises(KeyboardInterrupt):
        list(replies)
    for interrupt in interrupts:
        interrupt.join()
    assert all(gone(process) for process in processes)
    assert multiprocessing.active_children() == []


def test_ctrl_c_while_the_set_up_is_sent_to_a_frozen_worker_ends_it(monkeypatch):
    start = process_start.start

    def frozen_start(*arguments):
        process = start(*arguments)
        os.kill(process.pid, signal.SIGSTOP)
        return process

    monkeypatch.setattr(process_start, "start", frozen_start)
    large = SpellerSetup()
    large.dictionary = bytes(50_000_000)  # more than a pipe holds
    ctrl_c(after=1)
    with pytest.raises(KeyboardInterrupt):
        WorkerPool(large, 1)
    assert multiprocessing.active_children() == []
