"""The settings of a topic in a form."""

from mq.client.operations.subjects import topics
from mq.daemons.console.call import Call
from mq.daemons.console.pages.subject_changes import ATTRIBUTES
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Field, Values

MOST_QUEUES = 65_536  # the limit of queue ids in brokers of either release
_TYPES = ("NORMAL", "DELAY", "FIFO", "TRANSACTION", "MIXED")  # TopicMessageType

_QUEUES = (
    Field("read_queues", N_("Read queues"), "integer", required=True),
    Field("write_queues", N_("Write queues"), "integer", required=True),
    Field(
        "perm",
        N_("Permission"),
        "choice",
        required=True,
        choices=(
            ("6", N_("read and write")),
            ("4", N_("read only")),
            ("2", N_("write only")),
        ),
    ),
    Field("order", N_("Ordered: its queues stay the same while a broker is down"), "flag"),
)
_TYPE = Field(
    "message_type",
    N_("Messages"),
    "choice",
    choices=_TYPES,
    help=N_("RocketMQ 5, which refuses unknown ones; empty: unchanged."),
)
FIELDS = (*_QUEUES, _TYPE, ATTRIBUTES)


def check(call: Call, values: Values) -> None:
    """Raises BadField, and InvalidRequest for malformed attributes."""
    for name in ("read_queues", "write_queues"):
        if not 1 <= values[name] <= MOST_QUEUES:
            raise BadField(name, call.text("Expected 1 to %(most)s.", most=MOST_QUEUES))
    if values["attributes"]:
        topics.parse_attributes(values["attributes"])


def attributes(values: Values) -> dict[str, str] | None:
    """Return the changes of attributes; None without any."""
    found = topics.parse_attributes(values["attributes"]) if values["attributes"] else {}
    if values["message_type"]:
        found["+message.type"] = values["message_type"]
    return found or None


def command(values: Values, topic: str, broker_addr: str | None = None) -> tuple[str, ...]:
    """Return the command with the same settings, for the whole cluster or one broker."""
    where = ("-b", broker_addr) if broker_addr else ("-c", values["cluster"])
    words = ["updateTopic", *where, "-t", topic]
    words += ["-r", str(values["read_queues"])]
    words += ["-w", str(values["write_queues"]), "-p", values["perm"]]
    words += ["-o", "true"] if values["order"] else []
    changes = attributes(values)
    if changes:
        parts = (f"{key}={value}" if value else key for key, value in changes.items())
        words += ["-a", ",".join(parts)]
    return tuple(words)
