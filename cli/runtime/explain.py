"""Turns the errors of the client and the protocol into one line, a next step and a status."""

from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client import errors as client
from mq.protocol.errors import ProtocolError
from mq.protocol.names import RETRY_PREFIX, IllegalName

_ASK_LIST = "list what there is: mq topicList"

# What a peer's refusal means for the caller; any other code is UNAVAILABLE.
_REFUSALS: dict[type[client.BrokerError], tuple[Status, str]] = {
    client.SystemBusy: (Status.TRY_AGAIN, "try again; the broker is overloaded"),
    client.FlowControl: (Status.TRY_AGAIN, "try again, slower"),
    client.NoPermission: (
        Status.NO_PERMISSION,
        "look at the topic's permission (mq topicRoute) and at the accounts of who refused",
    ),
    client.TopicNotExist: (Status.NOT_FOUND, _ASK_LIST),
    client.QueryNotFound: (Status.NOT_FOUND, ""),
    client.PullNotFound: (Status.NOT_FOUND, ""),
    client.SubscriptionGroupNotExist: (Status.NOT_FOUND, "create it: mq updateSubGroup"),
    client.SubscriptionNotExist: (Status.NOT_FOUND, ""),
    client.ConsumerNotOnline: (Status.NOT_FOUND, "start a consumer of the group and try again"),
    client.MessageIllegal: (Status.BAD_DATA, ""),
    client.SubscriptionParseFailed: (Status.USAGE, "write tags as 'TagA || TagB'"),
    client.RequestNotSupported: (
        Status.UNAVAILABLE,
        "the peer's release does not know this request; see: mq clusterList",
    ),
}


def explain(error: Exception, environment: Environment) -> CommandError:
    """What the user is told of an exception that is not a CommandError.

    With MQ_DEBUG set, what nobody foresaw is raised again, so that its trace is seen.
    """
    if isinstance(error, client.BrokerError):
        status, hint = _REFUSALS.get(type(error), (Status.UNAVAILABLE, ""))
        return CommandError(str(error), hint=hint, status=status)
    if isinstance(error, client.ConnectError):
        return CommandError(
            f"cannot reach {error}",
            hint="check that it runs there, or give the name server: -n HOST:9876",
            status=Status.UNAVAILABLE,
        )
    if isinstance(error, client.RequestTimeout):
        return CommandError(
            str(error), hint="wait longer with --timeout SECONDS", status=Status.TRY_AGAIN
        )
    if isinstance(error, client.RouteNotFound):
        group = error.topic.removeprefix(RETRY_PREFIX)
        if group != error.topic:  # nobody who asked for a group wrote this name
            return CommandError(
                f"no name server knows a consumer group {group}",
                hint="list the groups there are: mq consumerProgress",
                status=Status.NOT_FOUND,
            )
        return CommandError(str(error), hint=_ASK_LIST, status=Status.NOT_FOUND)
    if isinstance(error, client.BadAnswer | ProtocolError):
        return CommandError(str(error), hint="is that a RocketMQ port?", status=Status.PROTOCOL)
    if isinstance(error, client.ClientError | IllegalName):
        return CommandError(str(error), status=Status.USAGE)
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        return CommandError(f"{named}{error.strerror or error}", status=Status.IO_ERROR)
    if environment.variables.get("MQ_DEBUG"):
        raise error
    return CommandError(
        f"a bug in mq: {type(error).__name__}: {error}",
        hint="run it again with MQ_DEBUG=1 and report the trace",
        status=Status.INTERNAL,
    )
