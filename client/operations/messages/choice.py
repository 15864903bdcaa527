"""Selects messages of a topic by time, queue, tag, key or SQL92."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mq.client.operations.errors import InvalidRequest, Parameter
from mq.client.operations.messages.lines import has_key

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage


@dataclass(frozen=True)
class Choice:
    """The selection of messages of a topic. Times are store times, ms since 1970: from `begin` up
    to, not including, `end`.

    `given` is how the two times were written. `brokers` and `queue_ids` are empty for all. At most
    one of `tags` and `sql` is set. The caller must ensure that `sql` is valid: Java's brokers
    answer a pull with an invalid expression with every message. (PullMessageProcessor continues
    without the filter that ConsumerFilterManager.build did not create.) Raises InvalidRequest for
    an inconsistent selection.
    """

    topic: str
    begin: int | None = None
    end: int | None = None
    brokers: tuple[str, ...] = ()
    queue_ids: tuple[int, ...] = ()
    tags: str | None = None
    sql: str | None = None
    key: str | None = None
    given: tuple[str | None, str | None] = (None, None)

    def __post_init__(self) -> None:
        if self.tags is not None and self.sql is not None:
            raise InvalidRequest(
                Parameter("tags"),
                " and ",
                Parameter("sql"),
                " cannot go together",
                hint="TAGS is a name in SQL92",
            )
        if self.begin is not None and self.end is not None and self.begin >= self.end:
            raise InvalidRequest(
                Parameter("begin"),
                " is not before ",
                Parameter("end"),
                ": no message is between them",
            )

    @property
    def expression(self) -> tuple[str, str]:
        """The expression and its type, for the broker."""
        return (
            ("*" if self.tags is None else self.tags, "TAG")
            if self.sql is None
            else (
                self.sql,
                "SQL92",
            )
        )

    def test(self) -> "Callable[[StoredMessage], bool] | None":
        """Return the check that must be done here for each message; None if the broker does all of
        it.
        """
        begin, end, key = self.begin, self.end, self.key
        if begin is None and end is None and key is None:
            return None

        def takes(message: "StoredMessage") -> bool:
            return (
                (begin is None or message.store_timestamp >= begin)
                and (end is None or message.store_timestamp < end)
                and (key is None or has_key(message, key))
            )

        return takes

    def document(self) -> dict[str, Any]:
        """Return the selection for a state file, to check later that it is the same: see
        `is_same`.
        """
        found = {
            name: value
            for name, value in vars(self).items()
            if value not in (None, ()) and name not in ("begin", "end", "given")
        }
        if any(self.given):
            found |= {"given": list(self.given), "times": [self.begin, self.end]}
        return found

    def at_times_of(self, asked: Mapping[str, Any]) -> "Choice":
        """Return the same selection with the times in a state."""
        begin, end = asked.get("times") or (self.begin, self.end)
        return replace(self, begin=begin, end=end)


def is_same(asked: dict[str, Any], stored: Any) -> bool:
    """Whether a state belongs to the current request; if so, `asked` gets the times of the state.

    `--begin 24h` means another time at each run, and must mean the time of the first run.
    """
    times = stored.get("times") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or stored | {"times": None} != asked | {"times": None}:
        return False
    if "times" in asked and times is not None:
        asked["times"] = times
    return True


def parse_queue_ids(texts: Iterable[int] | None) -> tuple[int, ...]:
    """Check queue ids. Raises InvalidRequest for a negative one."""
    found = tuple(texts or ())
    for number in found:
        if number < 0:
            raise InvalidRequest(f"a queue id of {number}")
    return found
