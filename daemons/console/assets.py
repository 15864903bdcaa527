"""Static files for browsers: style sheets and scripts, whose addresses contain their content's
hash.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mq.client.machine import files

FOLDER = Path(__file__).with_name("static")
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_KINDS |= {".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that browsers may cache forever under ``address``, a path below the console's."""

    name: str
    address: str
    kind: str
    content: bytes


def load(folder: Path = FOLDER) -> dict[str, Asset]:
    """Return all assets by name. They are read once, so that an address always has the same
    content.
    """
    found = {}
    for path in sorted(files.children(folder)):
        kind = _KINDS.get(path.suffix)
        if kind is not None:
            content = files.read_bytes(path)
            mark = hashlib.sha256(content).hexdigest()[:16]
            found[path.name] = Asset(path.name, f"/static/{mark}/{path.name}", kind, content)
    return found
