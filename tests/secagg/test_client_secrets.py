import numpy as np
import pytest

from fedbb.errors import RefusedError, RunError
from fedbb.secagg.cbr import Sums
from fedbb.secagg.client_secrets import (
    ClientSecrets,
    ClientStore,
    load_secrets,
    save_secrets,
    secrets_path,
)
from fedbb.secagg.primitives.keys import Identity

IDENTITY = Identity(b"i" * 32)


@pytest.mark.parametrize("sums", [None, Sums(60, 18.944117187952543, (0, 2, 3))])
@pytest.mark.parametrize("with_identity", [True, False])
def test_secrets_come_back_as_they_were(tmp_path, sums, with_identity):
    secrets = ClientSecrets(IDENTITY, b"n" * 32, np.array([12, 2**50 + 1, 1]), sums)
    path = secrets_path(tmp_path, 3)
    save_secrets(path, secrets, with_identity=with_identity)
    back = load_secrets(path, None if with_identity else IDENTITY)
    assert (back.identity.secret, back.nonce, back.sums) == (b"i" * 32, b"n" * 32, sums)
    assert back.declared.tolist() == [12, 2**50 + 1, 1]
    assert (b"identity" in path.read_bytes()) == with_identity
    assert path.stat().st_mode & 0o077 == 0


def test_secrets_are_not_printed():
    secrets = ClientSecrets(IDENTITY, b"n" * 32, np.array([12, 34, 1]))
    assert "iiii" not in repr(secrets)
    assert "nnnn" not in repr(secrets)
    assert "array" not in repr(secrets)


LARGE = f'{{"identity": "{"00" * 32}", "nonce": "00", "sums": null, "declared": [{"9" * 40}]}}'


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"identity": "zz"}', LARGE, "[" * 100_000],
    ids=["empty", "no fields", "a list", "no key", "a large number", "nested"],
)
def test_a_damaged_file_is_refused_by_name_without_its_content(tmp_path, content):
    (tmp_path / "client-00003.json").write_text(content)
    with pytest.raises(RunError, match=r"client-00003.json, the secrets of a client, cannot") as it:
        load_secrets(secrets_path(tmp_path, 3))
    assert "zz" not in str(it.value)


def test_a_stage_is_answered_once_even_by_two_processes(tmp_path):
    store, answered = ClientStore.open(tmp_path / "secure", IDENTITY), []

    class Stepping:
        def restore(self, saved):
            self.step = int(saved or b"0")

        def save(self):
            return str(self.step).encode()

    def step():
        client = Stepping()
        with store.stage_of(client, "masked.json"):
            client.step += 1
            yield
        answered.append(client.step)

    slow, fast = step(), step()
    next(slow)
    next(fast)
    assert next(fast, None) is None
    with pytest.raises(RefusedError, match="answered already, or a new attempt has begun"):
        next(slow)
    assert answered == [1]


def test_the_numbers_and_the_sums_of_a_run_stay_what_they_are(tmp_path):
    store = ClientStore.open(tmp_path / "secure", IDENTITY)
    with pytest.raises(RefusedError, match="has not committed"):
        store.load()
    first = store.commit(np.array([20, 7, 1]))
    assert store.commit(np.array([20, 7, 1])).nonce == first.nonce
    with pytest.raises(RunError, match="other data"):
        store.commit(np.array([21, 7, 1]))
    sums = Sums(60, 1.5, (0, 1, 2))
    store.confirm(sums)
    store.confirm(sums)
    assert store.load().sums == sums
    with pytest.raises(RefusedError, match="confirmed other sums before"):
        store.confirm(Sums(61, 1.5, (0, 1, 2)))
