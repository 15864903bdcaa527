"""The parts of mq as source folders, and the imports allowed between them."""

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
