import csv
import io

import pytest

from mq.cli.runtime.env import Environment
from mq.cli.show import message_text
from mq.cli.show.output import Format, Printer
from mq.cli.show.record_format import BodyFormat
from mq.cli.show.result import Result
from mq.cli.show.view import View
from mq.client.operations.columns import flag, number, text, time
from mq.client.operations.csv_text import csv_text
from mq.client.operations.messages import json_bodies
from mq.protocol.message import StoredMessage

RESULT = Result(
    columns=(text("name", "Name"), number("size", "Size"), time("born", "Born"), flag("up", "Up")),
    rows=[("a", 1, 1_700_000_000_123, True), ("b|,\n\"'", 20, 0, False), ("ü", None, None, True)],
    totals={"size": 21},
)


def printed(format: Format, result: Result, *, terminal: bool = False, columns: int = 80) -> str:
    out = io.StringIO()
    environment = Environment(
        stdin=io.StringIO(),
        stdout=out,
        stderr=io.StringIO(),
        variables={"NO_COLOR": "1"},
        terminal=terminal,
        columns=columns,
    )
    Printer(environment, "things", format).show(result)
    return out.getvalue()


def test_json_has_a_version_full_names_and_utc_times() -> None:
    assert printed(Format.JSON, RESULT) == (
        "{\n"
        '  "version": 1,\n'
        '  "command": "things",\n'
        '  "status": 0,\n'
        '  "data": [\n'
        "    {\n"
        '      "name": "a",\n'
        '      "size": 1,\n'
        '      "born": "2023-11-14T22:13:20.123Z",\n'
        '      "up": true\n'
        "    },\n"
        "    {\n"
        '      "name": "b|,\\n\\"\'",\n'
        '      "size": 20,\n'
        '      "born": null,\n'
        '      "up": false\n'
        "    },\n"
        "    {\n"
        '      "name": "ü",\n'
        '      "size": null,\n'
        '      "born": null,\n'
        '      "up": true\n'
        "    }\n"
        "  ],\n"
        '  "totals": {\n'
        '    "size": 21\n'
        "  },\n"
        '  "failures": []\n'
        "}\n"
    )


def test_yaml_is_the_same_document() -> None:
    import json

    import yaml

    assert yaml.safe_load(printed(Format.YAML, RESULT)) == json.loads(printed(Format.JSON, RESULT))


def test_csv_quotes_what_needs_it() -> None:
    assert printed(Format.CSV, RESULT) == (
        'name,size,born,up\na,1,2023-11-14T22:13:20.123Z,True\n"b|,\n""\'",20,,False\nü,,,True\n'
    )


def test_plain_is_the_command_s_own_text_where_it_has_one() -> None:
    assert printed(Format.PLAIN, Result(RESULT.columns, RESULT.rows, plain="exact")) == "exact"


def test_plain_without_a_text_aligns_columns() -> None:
    result = Result((text("name", "Name"), number("size", "Size")), [("a", 1), ("bb", 200)])
    assert printed(Format.PLAIN, result) == (
        "#Name      #Size\na              1\nbb           200\n"
    )


def test_a_table_folds_long_names_and_loses_no_letter() -> None:
    name = "".join(chr(0x61 + index % 26) for index in range(200))
    shown = printed(Format.TABLE, Result((text("n", "N"),), [(name,)]), columns=40)
    assert max(map(len, shown.splitlines())) <= 40
    assert "".join(shown.split("─")[-1].split()) == name
    assert "…" not in shown


def test_markdown_is_a_table_whose_bars_are_escaped() -> None:
    columns = (text("topic", "Topic"), number("queues", "Queues"), text("hidden", ""))
    shown = printed(Format.MARKDOWN, Result(columns, [("a|b", 8, "x"), ("c", 16, "y")]))
    assert [line.replace(" ", "") for line in shown.splitlines()] == [
        "|Topic|Queues|",
        "|:--------|---------:|",
        "|a\\|b|8|",
        "|c|16|",
    ]
    assert printed(Format.MARKDOWN, Result(plain="as it is\n")) == "```\nas it is\n```\n"


def test_failures_go_to_stderr_and_make_the_status_partly() -> None:
    out, err = io.StringIO(), io.StringIO()
    environment = Environment(stdin=io.StringIO(), stdout=out, stderr=err, variables={})
    result = Result((text("a", "A"),), [("x",)], plain="x\n", failures=["10.0.0.1:1: refused"])
    Printer(environment, "things", Format.PLAIN).show(result)
    assert (out.getvalue(), err.getvalue()) == ("x\n", "mq things: 10.0.0.1:1: refused\n")
    assert result.final_status == 1


@pytest.mark.parametrize("format", list(Format))
def test_every_format_prints_an_empty_result(format: Format) -> None:
    printed(format, Result((text("a", "A"),)))
    printed(format, Result())


def test_ongoing_json_is_one_document_a_line() -> None:
    out = io.StringIO()
    environment = Environment(stdin=io.StringIO(), stdout=out, stderr=out, variables={})
    printer = Printer(environment, "things", Format.JSON, ongoing=True)
    printer.show(RESULT)
    printer.show(RESULT)
    assert len(out.getvalue().splitlines()) == 2


@pytest.mark.parametrize("value", ["a\rb", "a\r\nb", "a\nb", "\r", 'a"b', "a,b", "b\r\n"])
def test_csv_is_read_back_as_it_was(value: str) -> None:
    made = csv_text([["first", "second"], [value, "x"], ["y", value]])
    assert list(csv.reader(io.StringIO(made, newline=""))) == [
        ["first", "second"],
        [value, "x"],
        ["y", value],
    ]
    columns = (text("first", "First"), text("second", "Second"))
    shown = printed(Format.CSV, Result(columns, [(value, "x")]))
    assert list(csv.reader(io.StringIO(shown, newline="")))[1:] == [[value, "x"]]


def test_ongoing_csv_has_one_head() -> None:
    out = io.StringIO()
    environment = Environment(stdin=io.StringIO(), stdout=out, stderr=out, variables={})
    printer = Printer(environment, "things", Format.CSV, ongoing=True)
    printer.show(RESULT)
    printer.show(RESULT)
    assert out.getvalue().count("name,size,born,up\n") == 1


def test_a_column_without_a_title_is_left_out_of_tables_only() -> None:
    result = Result((text("a", "A"), text("b", "")), [("seen", "hidden")])
    assert "hidden" not in printed(Format.TABLE, result)
    assert printed(Format.CSV, result) == "a,b\nseen,hidden\n"


def test_nothing_that_is_shown_in_a_table_can_paint_the_terminal() -> None:
    evil = "a\x1b[2Jb\x07c\x9b31md\te\nf"
    result = Result((text("n", "N"),), [(evil,)], totals={"t": evil}, notes=[evil])
    shown = printed(Format.TABLE, result)
    assert not set(shown) & {"\x1b", "\x07", "\x9b"}
    assert shown.count("a␛[2Jb␇c�31md") == 3
    assert printed(Format.CSV, result).count("\x1b") == 1  # programs get what there is


@pytest.mark.parametrize("format", [Format.TABLE, Format.PLAIN, Format.MARKDOWN])
def test_a_cell_is_one_line_in_the_order_in_which_it_was_written(format: Format) -> None:
    result = Result((text("name", "Name"),), [("a\nb\u202ec\u2066d",)])
    shown = printed(format, result)
    assert "a\u240ab\\u202ec\\u2066d" in shown.replace("\\\\", "\\")


def test_a_round_tells_of_its_own_bodies_that_are_too_large_and_not_of_an_earlier_one_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `--watch` does it at a terminal: a printer for each round, and one view."""
    monkeypatch.setattr(json_bodies, "MOST_JSON", 20)
    err = io.StringIO()
    environment = Environment(
        stdin=io.StringIO(), stdout=io.StringIO(), stderr=err, variables={"NO_COLOR": "1"}
    )
    view = View(body=BodyFormat.JSON)
    told = []
    for body in (b'{"a": "this is too large"}', b'{"a": 1}', b'{"b": "this is too large as well"}'):
        printer = Printer(environment, "printMsg", Format.JSON, view=view)
        for _ in range(2):
            printer.show(message_text.result([StoredMessage("T", body)]))
        told.append(err.getvalue())
        err.truncate(err.seek(0))
    line = "mq printMsg: a body of {} bytes is printed as text: JSON is limited to 20 bytes\n"
    hint = "hint: to print only the body: --format %b --body text\n"
    assert told == [line.format(26) + hint, "", line.format(34) + hint]
