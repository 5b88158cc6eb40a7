"""What fedbb changes in Flower's SuperLink."""

import sqlite3
from contextlib import closing

import pytest
from flwr.supercore import sql_mixin

from fedbb.flower.admin.superlink import is_allowed, wait_for_database


def test_requests_wait_a_minute_for_the_database_and_all_else_stays(monkeypatch):
    before = dict(sql_mixin.SQLITE_PRAGMAS)
    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)
    wait_for_database()
    with closing(sqlite3.connect(":memory:")) as database:
        sql_mixin._set_sqlite_pragmas(database, None)
        assert database.execute("PRAGMA busy_timeout").fetchone() == (60000,)
    after = dict(sql_mixin.SQLITE_PRAGMAS)
    assert after.pop("busy_timeout") != before.pop("busy_timeout")
    assert after == before


@pytest.mark.parametrize(
    ("path", "client", "allowed"),
    [
        ("/v1/fleet/pull-messages", "203.0.113.5", True),
        ("/health", "203.0.113.5", True),
        ("/v1/control/start-run", "203.0.113.5", False),
        ("/v1/control/start-run", "127.0.0.1", True),
        ("/v1/control/start-run", "::1", True),
        ("/v1/control/start-run", "::ffff:127.0.0.1", True),
        ("/v1/control/start-run", "::ffff:203.0.113.5", False),
        ("/v1/control/start-run", "10.0.0.1", True),  # the server's own address
        ("/v1/runtime/acquire-task", "203.0.113.5", False),
        ("/v1/fleetish", "203.0.113.5", False),
        ("/healthy", "203.0.113.5", False),
        ("/docs", "203.0.113.5", False),
        ("/v1/control/start-run", "testclient", False),
    ],
)
def test_other_machines_reach_the_interface_for_nodes_only(path, client, allowed):
    scope = {"type": "http", "path": path, "client": (client, 9), "server": ("10.0.0.1", 8443)}
    assert is_allowed(scope) == allowed


def test_who_hides_where_they_call_from_is_refused():
    assert not is_allowed({"type": "http", "path": "/docs", "client": None, "server": None})
    assert not is_allowed({"type": "websocket", "path": "/health", "client": None, "server": None})
