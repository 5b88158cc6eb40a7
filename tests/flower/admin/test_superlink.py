"""What fedbb changes in Flower's SuperLink."""

import sqlite3
from contextlib import closing

from flwr.supercore import sql_mixin

from fedbb.flower.admin.superlink import wait_for_database


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
