"""Files that commands read, where `-` is standard input."""

from pathlib import Path

from mq.cli.runtime.env import Environment


def content(environment: Environment, file: str) -> bytes:
    """What is in a file, or comes from standard input. Raises NotFound where it cannot be read."""
    if file == "-":
        stream = environment.stdin
        binary = getattr(stream, "buffer", None)
        return stream.read().encode() if binary is None else bytes(binary.read())
    from mq.client.operations import local_files

    return local_files.read(Path(file))


def called(file: str) -> str:
    """What messages call the file."""
    return "standard input" if file == "-" else file
