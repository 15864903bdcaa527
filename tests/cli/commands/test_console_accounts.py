"""`mq console user` and `mq console token`: the file of accounts."""

import asyncio
import json
from pathlib import Path

import pytest

from mq.cli.commands.console_import import dashboard_users
from mq.client.machine import clock
from mq.daemons.console.security import accounts
from mq.daemons.console.security.passwords import Passwords
from tests.cli.support import Finished, Mq

PASSWORD = "correct horse battery"


def mq(folder: Path, *words: str, typed: str | None = None) -> Finished:
    return Mq(folder)("console", *words, "--data", str(folder), typed=typed)


def test_an_account_is_added_shown_and_removed(tmp_path: Path) -> None:
    added = mq(
        tmp_path,
        *("user", "add", "ann", "--role", "reader", "--role", "prod=operator"),
        *("--topics", "orders-*;pay?", "-p", "-"),
        typed=PASSWORD + "\n",
    )
    assert added.status == 0, added.err
    path = tmp_path / "users.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()
    ann = accounts.read(path).users["ann"]
    assert ann.roles == {"*": "reader", "prod": "operator"}
    assert ann.topics == ("orders-*", "pay?")
    assert asyncio.run(Passwords().fits(ann.secret, PASSWORD))
    assert not asyncio.run(Passwords().fits(ann.secret, PASSWORD + "x"))
    listed = mq(tmp_path, "user-list", "-o", "json")
    assert json.loads(listed.out)["data"][0]["roles"] == "reader; prod=operator"
    assert "argon2" not in listed.out
    again = mq(tmp_path, "user", "add", "ann", "--role", "reader", "-p", "x" * 12)
    assert again.status != 0 and "already" in again.err
    assert mq(tmp_path, "user", "remove", "ann").status == 0
    assert accounts.read(path).users == {}
    assert not path.with_name("users.json.bak").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--role", "king", "-p", PASSWORD), "is not a role"),
        (("-p", PASSWORD), "--role is required"),
        (("--role", "reader", "-p", "short"), "12 to 256"),
        (("--role", "reader"), "no terminal to ask"),
    ],
)
def test_what_makes_no_account_is_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    refused = mq(tmp_path, "user", "add", "ann", *words)
    assert refused.status != 0 and why in refused.err
    assert not (tmp_path / "users.json").exists()


def test_another_password_ends_what_the_old_one_was_for(tmp_path: Path) -> None:
    mq(tmp_path, "user", "add", "ann", "--role", "reader", "-p", PASSWORD)
    before = accounts.read(tmp_path / "users.json").users["ann"]
    assert mq(tmp_path, "user", "passwd", "ann", "-p", "another password").status == 0
    after = accounts.read(tmp_path / "users.json").users["ann"]
    assert (before.roles, before.mark != after.mark) == (after.roles, True)
    assert mq(tmp_path, "user", "passwd", "bob", "-p", "another password").status != 0


def test_a_token_is_shown_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    refused = mq(tmp_path, "token", "add", "ci", "--role", "reader")
    assert refused.status != 0 and "no accounts" in refused.err
    mq(tmp_path, "user", "add", "ann", "--role", "administrator", "-p", PASSWORD)
    made = mq(tmp_path, "token", "add", "ci", "--role", "reader", "--days", "1", "-o", "json")
    token = json.loads(made.out)["data"][0]["token"]
    assert token not in (tmp_path / "users.json").read_text()
    found = accounts.read(tmp_path / "users.json")
    now = clock.milliseconds()
    assert found.of_token(token, now) is not None
    assert found.of_token(token, now + 2 * 86_400_000) is None
    assert token not in mq(tmp_path, "token", "list").out
    assert mq(tmp_path, "token", "remove", "ci").status == 0
    assert accounts.read(tmp_path / "users.json").of_token(token, now) is None


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    tried = mq(tmp_path, "user", "add", "ann", "--role", "reader", "-p", PASSWORD, "--dry-run")
    assert tried.status == 0, tried.err
    assert not (tmp_path / "users.json").exists()


def test_accounts_of_the_dashboard_are_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "users.properties"
    file.write_text(
        "# name=password[,N]\n\nadmin=admin,1\nroot=s3cret, with a comma,1\nbob=simple\ncarl=x,0\n"
    )
    done = mq(tmp_path, "user", "import", str(file), "-o", "json")
    assert done.status == 0, done.err
    rows = {row["name"]: row for row in json.loads(done.out)["data"]}
    assert rows["admin"]["note"].startswith("not imported")
    assert rows["bob"]["note"].startswith("the password is short")
    found = accounts.read(tmp_path / "users.json").users
    assert {n: one.roles["*"] for n, one in found.items()} == {
        "root": "administrator",
        "bob": "reader",
        "carl": "reader",
    }
    assert asyncio.run(Passwords().fits(found["root"].secret, "s3cret, with a comma"))


def test_a_hash_of_argon2_is_split_at_its_last_comma() -> None:
    kept = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"
    assert dashboard_users({"a": f"{kept},1", "b": kept}) == [
        ("a", kept, "administrator"),
        ("b", kept, "reader"),
    ]
