"""Turns errors of operations, client and protocol into one line, a hint and an exit status."""

from collections.abc import Sequence
from errno import EDQUOT, EFBIG, ENOSPC

from mq.cli.runtime.env import ClosedStream, Environment
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client import errors as client
from mq.client.operations import errors as operations
from mq.client.operations.errors import NextStep
from mq.protocol.errors import ProtocolError
from mq.protocol.names import RETRY_PREFIX, IllegalName

_ASK_LIST = "list topics: mq topicList"

# The exit status and hint of a peer's refusal; any other code is UNAVAILABLE.
_REFUSALS: dict[type[client.BrokerError], tuple[Status, str]] = {
    client.SystemBusy: (Status.TRY_AGAIN, "try again; the broker is overloaded"),
    client.FlowControl: (Status.TRY_AGAIN, "try again, slower"),
    client.NoPermission: (
        Status.NO_PERMISSION,
        "check the topic's permission (mq topicRoute) and the accounts of the broker",
    ),
    client.SettingRefused: (
        Status.NO_PERMISSION,
        "set it in the peer's configuration file and restart; with access control on, only an "
        "administrator's account may change settings",
    ),
    client.TopicNotExist: (Status.NOT_FOUND, _ASK_LIST),
    client.QueryNotFound: (Status.NOT_FOUND, ""),
    client.PullNotFound: (Status.NOT_FOUND, ""),
    client.SubscriptionGroupNotExist: (Status.NOT_FOUND, "create it: mq updateSubGroup"),
    client.SubscriptionNotExist: (Status.NOT_FOUND, ""),
    client.ConsumerNotOnline: (
        Status.NOT_FOUND,
        "start a consumer of the group and try again; running consumers register with a restarted "
        "broker within 30 s",
    ),
    client.MessageIllegal: (Status.BAD_DATA, ""),
    client.SubscriptionParseFailed: (Status.USAGE, "write tags as 'TagA || TagB'"),
    client.RequestNotSupported: (
        Status.UNAVAILABLE,
        "the peer's release does not know this request; see: mq clusterList",
    ),
}

_OPERATIONS: dict[type[operations.OperationError], Status] = {
    operations.InvalidRequest: Status.USAGE,
    operations.NotFound: Status.NOT_FOUND,
    operations.BadData: Status.BAD_DATA,
    operations.Misdeclared: Status.CONFIG,
    operations.Unavailable: Status.UNAVAILABLE,
    operations.Busy: Status.TRY_AGAIN,
    operations.Locked: Status.LOCKED,
    operations.CannotWrite: Status.CANNOT_CREATE,
}

_NO_ROOM = (ENOSPC, EDQUOT, EFBIG)

_NAME_SERVER_HINT = "check that it is running, or give the name server: -n HOST:9876"
_OTHER_HINT = "check that it is running; for the brokers see: mq clusterList"
_MIXED_UP_HINT = "-n takes a name server, usually HOST:9876, and -b a broker: they may be swapped"

# The options of operations' parameters, if the names differ.
_OPTIONS = {"tags": "--tag"}

# The next steps as commands. {} is the error's subject.
_NEXT_STEPS: dict[str, str] = {
    NextStep.LIST_CLUSTERS: "see: mq clusterList",
    NextStep.LIST_GROUPS: "list groups: mq group list",
    NextStep.LIST_TOPICS: _ASK_LIST,
    NextStep.LIST_DEAD_LETTERS: "see: mq dlq list",
    NextStep.SHOW_DEAD_LETTERS: "see: mq dlq show -g GROUP",
    NextStep.LOOK_AT_ROUTE: "see: mq topicRoute -t {}",
    NextStep.LOOK_AT_QUEUES: "for the offsets of each queue see: mq topicStatus -t {}",
    NextStep.NAME_QUEUES: "use [BROKER:]QUEUE=[BROKER:]QUEUE; see: mq topicRoute",
    NextStep.BEGIN_AGAIN: "to start over, remove it, or leave out --resume",
    NextStep.GO_ON_LATER: "continue when its brokers are back (see mq topicRoute); to start over "
    "with the current queues, remove the state",
    NextStep.CORRECT_THE_LINE: "the lines before it are sent; correct it, and use --resume",
    NextStep.SEND_THE_REST: "the lines before it are sent; correct it, and send it and the lines "
    "after it with another mq message import -",
    NextStep.SEND_FROM_A_FILE: "the lines before it are sent, and maybe some after it: import from "
    "a file, which supports --resume",
    NextStep.MAKE_ROOM: "free disk space, and continue with --resume",
    NextStep.EXPORT_OFFSETS: "nothing was done; to create a file of offsets: mq offset export FILE",
    NextStep.RESET_AT_BROKERS: "to set its offsets without consumers: mq resetOffsetByTimeOld",
    NextStep.RESET_WHOLE_TOPIC: "stop them first, or reset the whole topic: without -b and -q",
}


def _of_name_server(error: Exception) -> bool:
    return bool(error.__dict__.get("of_name_server", True))


def _explain_operation(error: operations.OperationError) -> CommandError:
    message = error.message
    if isinstance(error, operations.InvalidRequest):
        message = "".join(
            _OPTIONS.get(part, f"--{part}") if isinstance(part, operations.Parameter) else part
            for part in error.parts
        )
    hint = error.hint
    if hint in _NEXT_STEPS:
        hint = _NEXT_STEPS[hint].replace("{}", error.subject)
    status = next(status for kind, status in _OPERATIONS.items() if isinstance(error, kind))
    return CommandError(message, hint=hint, status=status)


def _explain_refusal(error: client.BrokerError) -> CommandError:
    status, hint = _REFUSALS.get(type(error), (Status.UNAVAILABLE, ""))
    if isinstance(error, client.RequestNotSupported) and _of_name_server(error):
        hint = _MIXED_UP_HINT
    elif isinstance(error, client.MessageIllegal) and error.names_limit:
        hint = f"to allow more: mq updateBrokerConfig -b {error.address} -k maxMessageSize -v N"
    return CommandError(str(error), hint=hint, status=status)


def note_peer(error: Exception, name_servers: Sequence[str]) -> None:
    """Note whether the peer of an error is a name server: `explain` then gives other hints."""
    if isinstance(error, client.MQError) and (address := getattr(error, "address", None)):
        error.__dict__["of_name_server"] = address in name_servers


def explain(error: Exception, environment: Environment) -> CommandError:
    """Return the CommandError for another exception.

    With MQ_DEBUG set, unexpected exceptions are raised again, so that the traceback is printed.
    """
    if isinstance(error, operations.OperationError):
        return _explain_operation(error)
    if isinstance(error, client.BrokerError):
        return _explain_refusal(error)
    if isinstance(error, client.ConnectError):
        return CommandError(
            f"cannot reach {error}",
            hint=getattr(
                error, "hint", _NAME_SERVER_HINT if _of_name_server(error) else _OTHER_HINT
            ),
            status=Status.UNAVAILABLE,
        )
    if isinstance(error, client.RequestTimeout):
        return CommandError(
            str(error), hint="wait longer with --timeout SECONDS", status=Status.TRY_AGAIN
        )
    if isinstance(error, client.RouteNotFound):
        group = error.topic.removeprefix(RETRY_PREFIX)
        if group != error.topic:  # the user asked for a group, not for its retry topic
            return CommandError(
                f"no name server has consumer group {group}",
                hint="list groups: mq consumerProgress",
                status=Status.NOT_FOUND,
            )
        is_there = " in its route" in str(error)
        hint = f"see: mq topicRoute -t {error.topic}" if is_there else _ASK_LIST
        return CommandError(str(error), hint=hint, status=Status.NOT_FOUND)
    if isinstance(error, client.BadAnswer | ProtocolError):
        return CommandError(
            str(error), hint="check that it is a RocketMQ port", status=Status.PROTOCOL
        )
    if isinstance(error, client.ClientError | IllegalName):
        return CommandError(str(error), status=Status.USAGE)
    if isinstance(error, client.MQError):  # a refusal of a TubeMQ server, with its own text
        status = Status.TRY_AGAIN if error.retriable else Status.UNAVAILABLE
        return CommandError(str(error), hint=getattr(error, "hint", ""), status=status)
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        if not named and error.errno in _NO_ROOM:  # a stream; a file would be named
            named = "cannot write the output: "
        hint = "to discard the output: >/dev/null" if isinstance(error, ClosedStream) else ""
        return CommandError(f"{named}{error.strerror or error}", hint=hint, status=Status.IO_ERROR)
    if environment.variables.get("MQ_DEBUG"):
        raise error
    return CommandError(
        f"a bug in mq: {type(error).__name__}: {error}",
        hint="run it again with MQ_DEBUG=1 and report the traceback",
        status=Status.INTERNAL,
    )
