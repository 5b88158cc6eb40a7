import pytest

from fedbb._util.retry import retry


def failing_until(success):
    def action(attempt):
        if attempt < success:
            raise LookupError(attempt)
        return attempt

    return action


def test_the_first_success_is_returned():
    assert retry(failing_until(1), LookupError, attempts=1) == 1
    assert retry(failing_until(3), LookupError, attempts=3) == 3
    assert retry(failing_until(7), LookupError) == 7


def test_the_last_failure_is_raised_and_the_others_are_reported():
    reported = []
    with pytest.raises(LookupError, match="3"):
        retry(failing_until(9), LookupError, attempts=3, failed=lambda *it: reported.append(it))
    assert [attempt for _, attempt in reported] == [1, 2]
    assert [error.args for error, _ in reported] == [(1,), (2,)]


def test_another_exception_ends_the_attempts():
    attempts = []

    def action(attempt):
        attempts.append(attempt)
        raise KeyError

    with pytest.raises(KeyError):
        retry(action, ZeroDivisionError, attempts=5)
    assert attempts == [1]
