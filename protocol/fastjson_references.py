"""References in JSON as fastjson writes them, `{"$ref":"$.path.to.the.first"}`."""

import re
from typing import Any

from mq.protocol.fastjson_tolerant import MalformedJson

# References are rare (fastjson writes one per object that occurs twice). Without these two limits a
# short document could expand to a huge one.
MAX_REFERENCES = 1000
MAX_REFERENCED_SIZE = 64
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[["']([^"']*)["']\]""")


def resolve_references(root: Any) -> Any:
    """Replace references by copies. One to a missing or large object becomes None."""
    left = MAX_REFERENCES
    pending = [root]
    while pending:
        node = pending.pop()
        if not isinstance(node, (dict, list)):
            continue
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            path = value.get("$ref") if isinstance(value, dict) and len(value) == 1 else None
            if isinstance(path, str):
                left -= 1
                if left < 0:
                    raise MalformedJson(f"more than {MAX_REFERENCES} references")
                node[key] = _copy_of_small(_follow(root, path))
            else:
                pending.append(value)
    return root


def _follow(root: Any, path: str) -> Any:
    if not path.startswith("$"):
        return None  # "@" and "..": the object itself or an enclosing one, which would be a cycle
    node = root
    for name, index, quoted in _STEP.findall(path[1:]):
        if isinstance(node, dict):
            node = node.get(name or quoted)
        elif isinstance(node, list) and index and int(index[:9]) < len(node):
            node = node[int(index[:9])]
        else:
            return None
    return node


def _copy_of_small(value: Any) -> Any:
    """Return a copy of an object of plain values and lists of plain values; None for anything
    else.
    """
    if not isinstance(value, dict) or len(value) > MAX_REFERENCED_SIZE:
        return None
    for item in value.values():
        if isinstance(item, dict) or (
            isinstance(item, list)
            and (len(item) > MAX_REFERENCED_SIZE or any(isinstance(i, (dict, list)) for i in item))
        ):
            return None
    return {key: list(v) if isinstance(v, list) else v for key, v in value.items()}
