"""The parts of mq as source folders, and the imports allowed between them."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A part, and the parts that its modules may import.
ALLOWED = {
    "protocol": set[str](),
    "client": {"protocol"},
    "daemons": {"client", "protocol"},
    "pipeline": {"client", "protocol"},
    "cli": {"client", "daemons", "pipeline", "protocol"},
    "mq": {"cli", "client", "daemons", "protocol"},  # only mq.testing needs the last three
}


def sources(part: str) -> list[Path]:
    """Every module of a part."""
    found = sorted((ROOT / part).rglob("*.py"))
    assert found
    return found


@functools.cache
def tree_of(source: Path) -> ast.Module:
    """The syntax tree of a module, parsed once per process. Do not change it."""
    return ast.parse(source.read_text("utf-8"))
