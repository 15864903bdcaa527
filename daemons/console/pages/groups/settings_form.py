"""The settings of a consumer group in a form."""

from typing import Any

from mq.client.operations.subjects import topics
from mq.daemons.console.call import Call
from mq.daemons.console.pages.subject_changes import ATTRIBUTES
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Field, Values
from mq.protocol.bodies import GroupRetryPolicy, SubscriptionGroupConfig
from mq.protocol.errors import RemoteProtocolError

MOST_RETRIES = 10_000
MOST_QUEUES = 1000

FIELDS = (
    Field("retry_max_times", N_("Retries before dead letters"), "integer", required=True),
    Field("retry_queue_nums", N_("Queues of its retry topic"), "integer", required=True),
    Field("consume_enable", N_("May consume"), "flag"),
    Field("consume_broadcast_enable", N_("May broadcast"), "flag"),
    Field("consume_from_min_enable", N_("May start at the oldest message"), "flag"),
    Field(
        "notify_consumer_ids_changed_enable",
        N_("Members are notified when others join or leave"),
        "flag",
    ),
    Field("broker_id", N_("Id of the broker to read from"), "integer", required=True),
    Field(
        "which_broker_when_consume_slowly",
        N_("Id of the broker to read from when the lag is large"),
        "integer",
        required=True,
    ),
    Field(
        "consume_message_orderly",
        N_("In order"),
        "choice",
        choices=(("true", N_("yes")), ("false", N_("no"))),
        help=N_("RocketMQ 5; empty: unchanged."),
    ),
    Field(
        "group_retry_policy",
        N_("Retry delays"),
        help=N_(
            "RocketMQ 5, as JSON in ms: "
            '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
        ),
    ),
    ATTRIBUTES,
)
# Fields that have the names of settings.
PLAIN = (
    *("retry_max_times", "retry_queue_nums", "consume_enable", "consume_broadcast_enable"),
    *("consume_from_min_enable", "notify_consumer_ids_changed_enable", "broker_id"),
    "which_broker_when_consume_slowly",
)


def check(call: Call, values: Values) -> None:
    """Raises BadField, and InvalidRequest for malformed attributes."""
    limits = {"retry_max_times": (-1, MOST_RETRIES), "retry_queue_nums": (0, MOST_QUEUES)}
    limits |= dict.fromkeys(("broker_id", "which_broker_when_consume_slowly"), (0, 2**31 - 1))
    for name, (least, most) in limits.items():
        if not least <= values[name] <= most:
            line = call.text("Expected %(least)s to %(most)s.", least=least, most=most)
            raise BadField(name, line)
    if values["attributes"]:
        topics.parse_attributes(values["attributes"])
    _policy(values)


def _policy(values: Values) -> GroupRetryPolicy | None:
    if not values["group_retry_policy"]:
        return None
    try:
        return GroupRetryPolicy.decode(values["group_retry_policy"].encode())
    except RemoteProtocolError as error:
        raise BadField("group_retry_policy", str(error)) from None


def changed(config: SubscriptionGroupConfig, values: Values) -> SubscriptionGroupConfig:
    """Return the settings with the values of the form. Attributes are changes: without any they
    stay.
    """
    kept: dict[str, Any] = {**config.__dict__, **{name: values[name] for name in PLAIN}}
    kept["attributes"] = None
    if values["attributes"]:
        kept["attributes"] = topics.parse_attributes(values["attributes"])
    if values["consume_message_orderly"]:
        kept["consume_message_orderly"] = values["consume_message_orderly"] == "true"
    policy = _policy(values)
    if policy is not None:
        kept["group_retry_policy"] = policy
    return SubscriptionGroupConfig(**kept)


def command(values: Values, group: str) -> tuple[str, ...]:
    """Return the command with the same settings."""
    words = ["updateSubGroup", "-c", values["cluster"], "-g", group]
    for option, name in (("-s", "consume_enable"), ("-m", "consume_from_min_enable")):
        words += [option, str(values[name]).lower()]
    words += ["-d", str(values["consume_broadcast_enable"]).lower()]
    words += ["-q", str(values["retry_queue_nums"]), "-r", str(values["retry_max_times"])]
    words += ["-i", str(values["broker_id"])]
    words += ["-w", str(values["which_broker_when_consume_slowly"])]
    words += ["-a", str(values["notify_consumer_ids_changed_enable"]).lower()]
    for option, name in (
        *(("-o", "consume_message_orderly"), ("-p", "group_retry_policy")),
        ("--attributes", "attributes"),
    ):
        words += [option, values[name]] if values[name] else []
    return tuple(words)
