"""TubeMQ in the simulator: seeds hold, defects are found, and databases are as SQLite's are."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.client.machine import database
from tests.conftest import IS_LONG
from tests.simulation.database import Connection
from tests.simulation.running import checks, simulate

pytestmark = pytest.mark.timeout(300)

SEEDS = 60 if IS_LONG else 6  # each takes a third of a second of a core


@pytest.mark.longer
def test_seeds_with_tubemq_hold() -> None:
    done = simulate("--first", "4", "--step", "9", "--seeds", str(SEEDS), "--no-shrink")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SEEDS} seeds in " in done.stdout
    assert "TubeMQ with flush mode sync" in done.stdout


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("given_is_taken_for_confirmed", ", and message "),
        pytest.param(*("tube_answers_before_it_syncs", "and is not there"), marks=pytest.mark.long),
    ],
)
def test_a_defect_that_is_planted_in_a_broker_is_found(name: str, shows: str) -> None:
    found = checks(name)[name]
    assert found, "no seed has found it"
    assert any(shows in problem for problem in found["problems"])
    assert found["faults"][1] <= found["faults"][0]


def test_a_masters_records_survive_kills_and_power_cuts() -> None:
    told = checks("records_survive", "records_have_one_master")
    assert told["records_survive"]["crashes"] > 20
    assert told["records_survive"]["problems"] == []
    alone = told["records_have_one_master"]
    assert alone["refused"] == ["InUse"]
    assert alone["found"] == 12


# the simulated database against SQLite's ----------------------------------------------------------

_KEYS = st.sampled_from("abc")
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _KEYS, st.binary(max_size=5000)),
        st.tuples(st.just("delete"), _KEYS, st.just(b"")),
        st.tuples(st.sampled_from(("begin", "commit", "rollback", "again")), _KEYS, st.just(b"")),
    ),
    max_size=25,
)


def _told(connect: Any, path: Path, steps: list[tuple[str, str, bytes]]) -> list[object]:
    """Return the answer to each step, and the content after it."""
    told: list[object] = []
    connection = connect(path)
    connection.execute("CREATE TABLE IF NOT EXISTS pairs (key TEXT PRIMARY KEY, value BLOB)")
    statements = {
        "put": "INSERT OR REPLACE INTO pairs VALUES (?, ?)",
        "delete": "DELETE FROM pairs WHERE key = ?",
        "begin": "BEGIN IMMEDIATE", "commit": "COMMIT", "rollback": "ROLLBACK",
    }  # fmt: skip
    for name, key, value in steps:
        if name == "again":  # what is not committed goes
            connection.close()
            connection = connect(path)
        else:
            given = {"put": (key, value), "delete": (key,)}.get(name, ())
            try:
                connection.execute(statements[name], given)
            except sqlite3.Error as error:
                told.append(str(error))
        told.append(connection.in_transaction)
        told.append(connection.execute("SELECT * FROM pairs ORDER BY key").fetchall())
        told.append(connection.execute("PRAGMA user_version").fetchone())
    connection.close()
    return told


@settings(max_examples=200 if IS_LONG else 30, deadline=None)
@given(steps=_STEPS)
def test_the_simulated_database_answers_as_sqlite_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("databases")
    real = _told(database.connect, folder / "real", steps)
    assert _told(Connection, folder / "simulated", steps) == real


def test_a_commit_that_fails_counts_when_its_name_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.client.machine import files

    def fails(_: object) -> None:
        raise OSError(5, "Input/output error")

    connection = Connection(tmp_path / "one")
    connection.execute("CREATE TABLE pairs (key TEXT PRIMARY KEY)")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO pairs VALUES ('a')")
    with monkeypatch.context() as patched:
        patched.setattr(files, "fsync", fails)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            connection.execute("COMMIT")
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT * FROM pairs").fetchall() == []
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO pairs VALUES ('b')")
    with monkeypatch.context() as patched:
        patched.setattr(files, "sync_folder", fails)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            connection.execute("COMMIT")
    assert connection.execute("SELECT * FROM pairs").fetchall() == [("b",)]
    connection.close()
    again = Connection(tmp_path / "one")
    assert again.execute("SELECT * FROM pairs").fetchall() == [("b",)]
    again.close()
