"""YAML in which a word is a string.

YAML 1.1, as read by PyYAML, treats Off, No and Y as booleans, 1_000 and 1:30 as numbers and
2026-01-01 as a date, and keeps the last of two equal keys. This module uses the core schema of YAML
1.2: true and false, numbers of digits, null, and text; a duplicate key is an error.
"""

import re
from typing import Any

import yaml


class NotYaml(ValueError):
    """The text is not YAML, or has a duplicate key. The message names the line."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, dict | list):
                raise NotYaml(f"{_place(key_node)}: a key is a mapping or a list")
            if key in found:
                raise NotYaml(f"{_place(key_node)}: {key!r} is there twice")
            found[key] = self.construct_object(value_node, deep=deep)
        return found


def _place(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


_Loader.yaml_implicit_resolvers = {}  # replaces those of 1.1
for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}$"), list(_first)
    )


def load(raw: bytes) -> Any:
    """Parse a text; None if it is empty. Raises NotYaml."""
    try:
        return yaml.load(raw, _Loader)  # a SafeLoader: plain values only
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, NotYaml):
            raise
        raise NotYaml(f"not YAML: {str(error).splitlines()[0]}") from None
