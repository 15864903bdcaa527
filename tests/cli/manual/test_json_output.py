"""docs/json-output.md has every command, and every command declares its output."""

import json

from mq.cli.manual import json_output
from mq.cli.manual.descriptions import commands
from mq.client.operations.columns import Kind
from tests.cli.support import Mq


def test_every_command_declares_what_it_gives() -> None:
    lacking = [command.name for command in commands() if command.talks and command.given is None]
    assert lacking == [], "decorate them: see mq.cli.runtime.effects.gives"


def test_names_are_camel_case_and_once_in_a_table() -> None:
    for command in commands():
        if command.given is None:
            continue
        for columns in (*command.given.tables, command.given.totals):
            names = [column.name for column in columns]
            assert len(set(names)) == len(names), command.name
            assert all(name.isidentifier() and name[0].islower() for name in names), command.name


def test_a_table_has_no_column_that_only_json_can_show() -> None:
    for command in commands():
        for columns in command.given.tables if command.given else ():
            assert not [column.name for column in columns if column.kind is Kind.NESTED]


def test_every_field_of_every_command_is_in_the_document() -> None:
    text = json_output.document()
    for command in commands():
        if command.given is None:
            continue
        part = text.split(f"\n### {command.name}\n")[1].split("\n### ")[0]
        shapes = [*command.given.tables, command.given.totals]
        if not isinstance(command.given.data, str) and command.given.data:
            shapes = [command.given.data, command.given.totals]
        for columns in shapes:
            for column in columns:
                assert f"| `{column.name}` |" in part, command.name


def test_the_document_s_example_is_what_is_printed(cluster: Mq) -> None:
    example = json.loads(json_output.document().split("```json\n")[1].split("```")[0])
    printed = cluster("topicList", "-o", "json").json
    assert list(example) == list(printed)
    assert example["version"] == printed["version"]
    assert example["data"][0].keys() == printed["data"][0].keys()
