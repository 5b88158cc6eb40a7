import signal
import threading

import pytest

from fedbb._util.interrupt import on_interrupt


@pytest.fixture(autouse=True)
def restored():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_action_is_taken_in_the_block_only():
    taken = []
    with on_interrupt(lambda *_: taken.append(1)):
        signal.raise_signal(signal.SIGINT)
    assert taken == [1]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_is_ignored_stays_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with on_interrupt(signal.default_int_handler):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_changes_nothing():
    before, seen = signal.getsignal(signal.SIGINT), []

    def look():
        with on_interrupt(signal.SIG_IGN):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
