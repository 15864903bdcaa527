"""Input files of commands; `-` is standard input."""

from pathlib import Path

from mq.cli.runtime.env import Environment


def content(environment: Environment, file: str) -> bytes:
    """Return the content of a file or of standard input. Raises NotFound if it cannot be read."""
    if file == "-":
        stream = environment.stdin
        binary = getattr(stream, "buffer", None)
        return stream.read().encode() if binary is None else bytes(binary.read())
    from mq.client.operations import local_files

    return local_files.read(Path(file))


def called(file: str) -> str:
    """Return the name of the file for messages."""
    return "standard input" if file == "-" else file
