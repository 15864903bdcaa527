"""Access data that our master sends to our brokers: visit tokens by kind, and consume rights.

It is JSON in `MasterBrokerAuthorizedInfo.authAuthorizedToken`, a field that Java's masters leave
empty and Java's brokers do not read. A broker names its version of the rights in
`MasterCertificateInfo.authorizedToken`; the master omits them while they are the same.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mq.protocol.tube.errors import MalformedText

_MOST_TOKENS = 16  # of each kind
_TOKEN_BITS = 63


@dataclass(frozen=True, slots=True)
class TopicRight:
    """The groups that may consume a topic.

    Attributes:
        allowed: the groups that may, and the filter items that each is limited to (None: all); None
            if every group may that is not barred.
        barred: the groups that may not; used if `allowed` is None.
    """

    allowed: Mapping[str, frozenset[str] | None] | None = None
    barred: frozenset[str] = frozenset()

    def permits(self, group: str) -> bool:
        """Whether a group may consume the topic."""
        return group not in self.barred if self.allowed is None else group in self.allowed

    def permits_items(self, group: str, items: frozenset[str]) -> bool:
        """Whether a group that may consume the topic may do so with these filter items."""
        limit = None if self.allowed is None else self.allowed.get(group)
        return limit is None or (bool(items) and items <= limit)

    def to_json(self) -> Any:
        """Return the right in JSON form."""
        if self.allowed is None:
            return {"barred": sorted(self.barred)}
        return {
            "allowed": {
                group: None if items is None else sorted(items)
                for group, items in sorted(self.allowed.items())
            }
        }


Rights = Mapping[str, TopicRight]


@dataclass(frozen=True, slots=True)
class Grants:
    """The access data of one response of a master.

    Attributes:
        produce, consume: valid visit tokens, the oldest first.
        rights_id: identifies the rights; "" if brokers do not authorize consumers.
        rights: by topic; None if the broker has them already.
    """

    produce: tuple[int, ...]
    consume: tuple[int, ...]
    rights_id: str = ""
    rights: Rights | None = None

    def __str__(self) -> str:
        content: dict[str, Any] = {"produce": self.produce, "consume": self.consume}
        if self.rights_id:
            content["rightsId"] = self.rights_id
        if self.rights is not None:
            content["rights"] = rights_json(self.rights)
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> "Grants":
        """Raises MalformedText."""
        try:
            content = json.loads(text)
            rights = content.get("rights")
            return cls(
                _tokens(content["produce"]),
                _tokens(content["consume"]),
                _text(content.get("rightsId", "")),
                None if rights is None else {_text(k): _right(v) for k, v in rights.items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            # The text itself has secrets, and must not be logged.
            raise MalformedText("access data of a master", str(error)) from None


def rights_json(rights: Rights) -> dict[str, Any]:
    """Return rights in JSON form, in a fixed order."""
    return {topic: right.to_json() for topic, right in sorted(rights.items())}


def _tokens(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_TOKENS:
        raise ValueError("a list of tokens is missing")
    if not all(type(one) is int and 0 < one < 1 << _TOKEN_BITS for one in values):
        raise ValueError("a token is not a number of 63 bits")
    return tuple(values)


def _right(value: Any) -> TopicRight:
    if "allowed" not in value:
        return TopicRight(barred=frozenset(_text(one) for one in value["barred"]))
    return TopicRight(
        {
            _text(group): None if items is None else frozenset(_text(one) for one in items)
            for group, items in value["allowed"].items()
        }
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
