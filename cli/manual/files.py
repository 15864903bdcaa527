"""All files that `mq manual` writes."""

from collections.abc import Iterator

from mq.cli.manual import bash, fish, json_output, zsh
from mq.cli.manual.pages import pages


def files() -> Iterator[tuple[str, str]]:
    """Yield the path of each file below the project's directory, and its text."""
    yield from pages()
    yield "completions/bash/mq", bash.script()
    yield "completions/zsh/_mq", zsh.script()
    yield "completions/fish/mq.fish", fish.script()
    yield "docs/json-output.md", json_output.document()
