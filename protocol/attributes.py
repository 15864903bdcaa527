"""Attributes of topics and groups, which releases 5.x have, and requests that change them.

A change is a mapping of `+key` to a new value and of `-key` to an empty text; in the header of a
request it is the text `+key=value,-key`. Stored attributes have plain keys. The texts of errors are
those of org.apache.rocketmq.common.attribute (5.5.0).
"""

from collections.abc import Mapping
from typing import NamedTuple

_LONG_MAX = (1 << 63) - 1
_MOST_LITE_MINUTES = 30 * 24 * 60
MAX_TEXT = 255  # characters of a value that may be any text


class Attribute(NamedTuple):
    """The values that an attribute may have: one of `values`, a number in `numbers`, or any text.

    `refused` are values that Java accepts and this broker does not support.
    """

    values: frozenset[str] = frozenset()
    numbers: range | None = None
    changeable: bool = True
    refused: Mapping[str, str] = {}

    def check(self, key: str, value: str) -> None:
        """Raises ValueError for a value that the attribute may not have."""
        if value in self.refused:
            raise ValueError(self.refused[value])
        if self.values and value not in self.values:
            raise ValueError(f"{key}={value}: value is not in set: {sorted(self.values)}")
        if self.numbers is not None:
            digits = value.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
                raise ValueError(f"{key}={value}: expected a whole number")
            if int(value) not in self.numbers:
                first, last = self.numbers[0], self.numbers.stop - 1
                raise ValueError(f"{key}={value}: value is not in range({first}, {last})")
        if len(value) > MAX_TEXT:
            raise ValueError(f"{key}: a value of {len(value)} characters, over {MAX_TEXT}")


_BOOLEAN = Attribute(frozenset(("true", "false")))

#: org.apache.rocketmq.common.TopicAttributes.ALL of 5.5.0.
TOPIC = {
    "queue.type": Attribute(
        frozenset(("SimpleCQ", "BatchCQ")),
        changeable=False,
        refused={"BatchCQ": "queue.type=BatchCQ: this broker has queues of type SimpleCQ only"},
    ),
    "cleanup.policy": Attribute(
        frozenset(("DELETE", "COMPACTION")),
        changeable=False,
        refused={"COMPACTION": "cleanup.policy=COMPACTION: this broker does not compact topics"},
    ),
    "message.type": Attribute(
        frozenset(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE")),
        refused={
            "MIXED": "MIXED message type is not supported.",
            "LITE": "message.type=LITE: this broker has no light topics",
        },
    ),
    "reserve.time": Attribute(numbers=range(-1, _LONG_MAX + 1)),
    "lite.topic.expiration": Attribute(numbers=range(-1, _MOST_LITE_MINUTES + 1)),
}

#: org.apache.rocketmq.common.SubscriptionGroupAttributes.ALL of 5.5.0.
GROUP = {
    "priority.factor": Attribute(numbers=range(101)),
    "lite.bind.topic": Attribute(),
    "lite.sub.model": Attribute(frozenset(("Shared", "Exclusive"))),
    "lite.sub.reset.offset.exclusive": _BOOLEAN,
    "lite.sub.reset.offset.unsubscribe": _BOOLEAN,
    "lite.sub.client.quota": Attribute(numbers=range(-1, _LONG_MAX + 1)),
    "lite.sub.client.max.event.cnt": Attribute(numbers=range(10, _LONG_MAX + 1)),
    "lite.sub.wildcard": Attribute(),
}


def parse_changes(text: str) -> dict[str, str]:
    """Parse the changes in `+key=value,-key` (AttributeParser.parseToMap). Raises ValueError."""
    changes: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if equals and not (key.startswith("+") and value):
            raise ValueError(f"add/alter attribute format is wrong: {part}")
        if not equals and not key.startswith("-"):
            raise ValueError(f"delete attribute format is wrong: {part}")
        if key in changes:
            raise ValueError(f"key duplication: {key}")
        changes[key] = value
    return changes


def check_changes(
    known: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
) -> None:
    """Check a change of the attributes `current`, None for a new topic or group
    (AttributeUtil.alterCurrentAttributes).

    Raises:
        ValueError: an attribute is unknown, must not change, or has an invalid value.
    """
    seen: set[str] = set()
    for signed, value in changes.items():
        if _is_unchanged(current, signed, value):
            continue
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-"):
            raise ValueError(f"wrong format key: {signed[:MAX_TEXT]}")
        if key in seen:
            raise ValueError(f"alter duplication key. key: {key}")
        seen.add(key)
        if key not in known:
            raise ValueError(f"unsupported key: {key[:MAX_TEXT]}")
        if current is None and sign == "-":
            raise ValueError(f"only add attribute is supported while creating. key: {key}")
        if sign == "-" and key not in (current or {}):
            raise ValueError(f"attempt to delete a nonexistent key: {key}")
        if current is not None and not known[key].changeable:
            raise ValueError(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "+":
            known[key].check(key, value)


def apply_changes(
    current: Mapping[str, str] | None, changes: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the attributes after a change that `check_changes` accepts. Other attributes stay."""
    after = dict(current or {})
    for signed, value in (changes or {}).items():
        if _is_unchanged(current, signed, value):
            continue
        if signed.startswith("-"):
            after.pop(signed[1:], None)
        else:
            after[signed[1:]] = value
    return after


def _is_unchanged(current: Mapping[str, str] | None, key: str, value: str) -> bool:
    """Whether an unsigned key has its stored value: tools send back all settings."""
    return bool(value) and (current or {}).get(key) == value
