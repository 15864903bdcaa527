"""docs/json-output.md: the output of `-o json`, command by command."""

from mq.cli import catalog
from mq.cli.manual.declarations import CommandDescription
from mq.cli.manual.descriptions import commands
from mq.cli.runtime.effects import Columns
from mq.cli.show import changes_text
from mq.cli.show.output import JSON_VERSION
from mq.client.operations.columns import Kind

_TYPES = {
    Kind.TEXT: "string",
    Kind.NUMBER: "number",
    Kind.TIME: "time",
    Kind.FLAG: "boolean",
    Kind.NESTED: "any",
}

_HEAD = f"""\
# JSON of the commands

Written by `mq manual` from the declarations of the commands (`make manual`); tests check every
command against it.

With `-o json` a command prints one object:

```json
{{
  "version": {JSON_VERSION},
  "command": "topicList",
  "status": 0,
  "data": [{{"topic": "TopicA"}}],
  "totals": {{}},
  "failures": []
}}
```

| field | description |
|---|---|
| `version` | {JSON_VERSION}; it grows when a field is changed or removed, not when one is added |
| `command` | name of the command |
| `status` | the exit status of `mq`, see mq(1) |
| `data` | a list of objects with the fields below, unless another form is described there |
| `totals` | facts about the whole, by name |
| `failures` | a line of text for each part that failed; also written to standard error |
`-o yaml` it is the same document in YAML; with `-o csv` the rows alone.

Types: a *time* is a string in UTC and ISO 8601, `2026-07-01T12:00:00.123Z`. A value may be null if
it is unknown. With `--columns` only the selected fields are present. With `--dry-run` `data` is the
list of changes that were not made:

"""


def document() -> str:
    """Return the whole text."""
    parts = [_HEAD, _table(changes_text.DATA), "\n`totals`: `changes`, their number.\n"]
    for group, title in catalog.TITLES.items():
        described = [command for command in commands(group) if command.talks]
        if described:
            parts.append(f"\n## {title}\n")
            parts += [_command(command) for command in described]
    return "".join(parts)


def _command(command: CommandDescription) -> str:
    text = f"\n### {command.name}\n\n{command.summary}\n\n"
    given = command.given
    if given is None:
        return text + "Its data is not described.\n"
    if isinstance(given.data, str):
        text += f"`data`: {given.data}. As table and csv:\n\n"
        text += "\nor\n\n".join(_table(columns) for columns in given.tables)
    elif given.data:
        text += _table(given.data)
    else:
        text += "\nor\n\n".join(_table(columns) for columns in given.tables)
    if given.totals:
        text += f"\n`totals`:\n\n{_table(given.totals)}"
    return text


def _table(columns: Columns) -> str:
    lines = ["| field | type | description |", "|---|---|---|"]
    for column in columns:
        lines.append(f"| `{column.name}` | {_TYPES[column.kind]} | {column.title or column.name} |")
    return "\n".join(lines) + "\n"
