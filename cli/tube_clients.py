"""Options of TubeMQ commands, and the clients and administrators made from them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.parameters import group_option, topic_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group

if TYPE_CHECKING:
    from mq.client.credentials import AccessKey
    from mq.client.tube.admin import TubeAdmin
    from mq.client.tube.producer import TubeProducer
    from mq.protocol.tube.strings import Address

DEFAULT_MASTERS = "127.0.0.1:8715"

Topic = Annotated[str, topic_option("Name of the topic.")]
TopicFilter = Annotated[str | None, topic_option("Only this topic.")]
Group = Annotated[str, group_option(text="Consumer group.")]
Brokers = Annotated[
    str | None,
    typer.Option("-b", "--brokers", metavar="ID[,…]", help="Only the brokers with these ids."),
]


@option_group
class Authority:
    """The credentials and author of a change."""

    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the cluster's confModAuthToken. Default: MQ_TUBE_TOKEN.",
        ),
    ] = None
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="User named as the author of the change.")
    ] = "mq"


def masters_of(call: Call) -> "tuple[Address, ...]":
    """Return the masters of a command. Raises UsageError for invalid addresses."""
    from mq.protocol.tube.errors import MalformedText
    from mq.protocol.tube.strings import parse_addresses

    given = call.given_masters or call.environment.variables.get("MQ_TUBE_MASTERS")
    given = given or DEFAULT_MASTERS
    try:
        if not all(":" in item for item in given.split(",") if item.strip()):
            raise MalformedText(given, "a master is HOST:PORT")
        return parse_addresses(given)
    except MalformedText as error:
        raise UsageError(f"-n/--masters: {error}") from None


def admin_of(call: Call, authority: Authority | None = None) -> "TubeAdmin":
    from mq.client.tube.admin import TubeAdmin

    token = ""
    if authority is not None:
        token = call.environment.variables.get("MQ_TUBE_TOKEN", "")
        if authority.token_file is not None:
            with open(authority.token_file, encoding="utf-8") as file:
                token = file.read(4096).strip()
    return TubeAdmin(
        masters_of(call),
        web_port=call.web_port,
        token=token,
        user="mq" if authority is None else authority.user,
        timeout=call.timeout,
    )


def ids_of(brokers: str | None) -> list[int]:
    """Return broker ids. Raises UsageError."""
    found = [item.strip() for item in (brokers or "").split(",") if item.strip()]
    if not all(item.isascii() and item.isdigit() and len(item) < 11 for item in found):
        raise UsageError(
            f"-b/--brokers {brokers}: ids must be numbers", hint="see: mq tube brokers"
        )
    return [int(item) for item in found]


_MIN_TIMEOUT = 8.0  # seconds; the minimum of the original


def client_options(call: Call, key: "AccessKey | None") -> dict[str, Any]:
    """Return keywords of `TubeClientOptions`. An access key is a user and a password here."""
    from mq.client.tube.credentials import TubeCredentials

    return {
        "credentials": None if key is None else TubeCredentials(key.access_key, key.secret_key),
        "tls": call.tls(),
        "timeout": max(call.timeout, _MIN_TIMEOUT),
        "connect_timeout": call.timeout,
    }


def own_options(call: Call) -> dict[str, Any]:
    """Return the same for the command's cluster, with its access key."""
    return client_options(call, call.credentials())


def own_masters(call: Call) -> list[str]:
    """Return the masters of the command's cluster, for clients."""
    return [str(address) for address in masters_of(call)]


def producer_of(call: Call, topic: str) -> "TubeProducer":
    """Return a producer for a topic of the command's cluster."""
    from mq.client.tube.producer import TubeProducer
    from mq.client.tube.producer_options import TubeProducerOptions

    return TubeProducer(own_masters(call), [topic], TubeProducerOptions(**own_options(call)))
