"""A site's own node: what its staff see."""

import sys
import time
from itertools import islice

import pytest

from fedbb.errors import RunError
from fedbb.flower.admin import node
from fedbb.flower.admin.certificates import make_certificates
from fedbb.flower.admin.control import Health
from fedbb.flower.admin.local import free_port
from fedbb.flower.admin.paths import FederationFolder
from fedbb.flower.admin.templates import make_federation

WELL = Health(None, ahead=0.0)
PRIVATE_LOG = """\
\x1b[92mINFO \x1b[0m:      [RUN 7, ROUND cards]
\x1b[92mINFO \x1b[0m:      Receiving: query.number message (ID: 3)
\x1b[92mINFO \x1b[0m:      [RUN 7, ROUND statistics, stage keys]
\x1b[92mINFO \x1b[0m:      Receiving: query.secure message (ID: 4)
\x1b[92mINFO \x1b[0m:      [RUN 7, ROUND round 1, stage masked]
\x1b[92mINFO \x1b[0m:      Receiving: train.secure message (ID: 5)
"""
LOG = """\
\x1b[92mINFO \x1b[0m:      Starting Flower SuperNode
\x1b[92mINFO \x1b[0m:      SuperNode ID: 42
\x1b[92mINFO \x1b[0m:      [RUN 7, ROUND cards]
\x1b[92mINFO \x1b[0m:      Receiving: query.info message (ID: 3)
\x1b[92mINFO \x1b[0m:      Sent successfully
\x1b[92mINFO \x1b[0m:      [RUN 7, ROUND round 1]
\x1b[92mINFO \x1b[0m:      Receiving: train message (ID: 4)
\x1b[93mWARNING \x1b[0m:   Connection attempt failed, retrying in 0.13 seconds
\x1b[93mWARNING \x1b[0m:   Connection attempt failed, retrying in 1.13 seconds
\x1b[92mINFO \x1b[0m:      Connection successful after 9.00 seconds and 3 tries.
\x1b[92mINFO \x1b[0m:      Sent successfully
"""


@pytest.fixture
def site(tmp_path):
    folder = FederationFolder(tmp_path / "federation")
    make_federation(folder, 1, f"localhost:{free_port('127.0.0.1')}")
    make_certificates(folder)
    return folder.site(0)


def pretend(monkeypatch, said, seconds=0.0):
    """Have a program that says this, and ends, in the place of Flower's."""
    script = f"import time; print({said!r}, end='', flush=True); time.sleep({seconds})"
    monkeypatch.setattr(node, "node_command", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(node, "RESTART_SECONDS", 0.1)


def test_what_happens_is_told_in_few_words(site, monkeypatch):
    pretend(monkeypatch, LOG, seconds=2.0)
    words = node.join(site)
    told = list(islice(words, 8))
    words.close()
    assert told[0].startswith(f"connecting to {site.settings()['server']} as client 0")
    assert told[1:] == [
        "online",
        "reports its number of samples and dispersion",
        "has replied",
        "round 1: trains",
        "the server does not respond; trying again",
        "the server responds again",
        "has replied",
    ]


def test_the_stages_of_a_private_run_are_told(site, monkeypatch):
    pretend(monkeypatch, PRIVATE_LOG, seconds=2.0)
    words = node.join(site)
    told = list(islice(words, 4))
    words.close()
    assert told[1:] == [
        "reports its client number, and nothing else",
        "secure sum, statistics, stage keys",
        "secure sum, round 1, stage masked",
    ]


def test_a_node_that_ends_is_started_again_and_an_old_log_is_not_told_anew(site, monkeypatch):
    site.log.write_text("SuperNode ID: 1\n[code: 2004]\n")
    pretend(monkeypatch, "INFO : SuperNode ID: 42\n", seconds=1.0)
    begun = time.monotonic()
    words = node.join(site)
    told = list(islice(words, 4))
    words.close()
    assert told[1:] == ["online", "the node ended; trying again every 0 s", "online"]
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("said", "answer", "words"),
    [
        ("Exit Code: 305 [code: 2004] Node activation failed", WELL, "send node.pub to its staff"),
        ("terminated gracefully", Health(None, ahead=3600.0), "3600 s ahead of the server's"),
        ("terminated gracefully", Health(None, ahead=-3600.0), "3600 s behind the server's"),
        ("terminated gracefully", WELL, "the node ended"),
        ("", Health("refused", "no program listens there"), "the node ended"),
    ],
)
def test_why_a_node_ended_is_told(said, answer, words):
    assert words in node.explain(said, answer)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("SSL/TLS handshake error detected.", WELL),
        ("", Health("untrusted", "its certificate is not accepted: certificate has expired")),
    ],
)
def test_a_server_that_is_not_trusted_is_not_called_again(said, answer):
    with pytest.raises(RunError, match="is not trusted"):
        node.explain(said, answer)


@pytest.mark.parametrize("missing", ["key", "ca"])
def test_a_site_without_its_files_is_told_which(site, missing):
    getattr(site, missing).unlink()
    with pytest.raises(RunError, match=f"{getattr(site, missing).name} is missing; see README.md"):
        next(node.join(site))
