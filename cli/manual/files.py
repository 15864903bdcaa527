"""All files that `mq manual` writes."""

from collections.abc import Iterator

from mq.cli.manual import json_output, option_table
from mq.cli.manual.pages import pages


def files() -> Iterator[tuple[str, str]]:
    """Yield the path of each file below the project's directory, and its text."""
    yield from pages()
    yield "cli/completion/options.json", option_table.document()
    yield "docs/json-output.md", json_output.document()
