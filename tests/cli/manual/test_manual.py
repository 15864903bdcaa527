"""The output of `mq manual` is committed."""

from importlib import import_module
from inspect import isfunction
from pathlib import Path
from pkgutil import iter_modules

from mq.cli import commands
from mq.cli.catalog import function_name
from mq.cli.manual import table
from mq.cli.manual.files import files
from mq.cli.runtime.effects import given_by
from tests.cli.support import Mq

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_files_are_what_the_declarations_say() -> None:
    made = dict(files())
    stale = [
        name
        for name, text in made.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text("utf-8") != text
    ]
    stale += [
        f"man/{path.name}"
        for path in (ROOT / "man").glob("mq*.[0-9]")
        if f"man/{path.name}" not in made
    ]
    assert stale == [], "the commands have changed: run `make manual` and commit what it writes"


def test_it_writes_what_has_changed_and_removes_what_is_gone(mq: Mq, tmp_path: Path) -> None:
    first = mq("manual", "--directory", str(tmp_path), "-o", "json")
    assert first.status == 0
    assert all(row["changed"] for row in first.json["data"])
    (tmp_path / "man/mq.1").write_text("old")
    (tmp_path / "man/mq-gone.1").write_text("old")
    second = mq("manual", "--directory", str(tmp_path), "-o", "json").json["data"]
    assert [row["path"] for row in second if row["changed"]] == ["man/mq.1", "man/mq-gone.1"]
    assert not (tmp_path / "man/mq-gone.1").exists()
    assert (tmp_path / "man/mq.1").read_text().startswith('.\\"')


def test_a_dry_run_writes_nothing(mq: Mq, tmp_path: Path) -> None:
    finished = mq("manual", "--directory", str(tmp_path), "--dry-run")
    assert finished.status == 0
    assert f"write at {tmp_path}/man/mq.1\n" in finished.out
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused(mq: Mq, tmp_path: Path) -> None:
    assert mq("manual", "--directory", str(tmp_path / "none")).status == 64


def test_the_committed_table_of_commands_is_what_their_modules_list() -> None:
    written = (ROOT / table.PATH).read_text("utf-8")
    assert written == table.text(), "run `make manual` and commit what it writes"


def test_every_function_that_gives_a_result_is_listed_as_a_command() -> None:
    for found in iter_modules(commands.__path__):
        module = import_module(f"mq.cli.commands.{found.name}")
        listed = {
            function_name(name)
            for names in getattr(module, "COMMANDS", {}).values()
            for name in names
        }
        gives = {
            name
            for name, value in vars(module).items()
            if isfunction(value) and value.__module__ == module.__name__ and given_by(value)
        }
        assert gives <= listed, found.name
