"""The inputs that are kept: a file per target, a line of hexadecimal digits per input."""

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).with_name("corpus")


def load(target: str) -> list[bytes]:
    """The kept inputs of a target, none if it has no file."""
    path = FOLDER / f"{target}.txt"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def save(target: str, inputs: Iterable[bytes]) -> None:
    """Keep these, the short ones first."""
    FOLDER.mkdir(exist_ok=True)
    lines = [data.hex() for data in sorted(set(inputs), key=lambda data: (len(data), data))]
    (FOLDER / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines))
