"""Options that several commands have, declared once. Their names are mqadmin's, and fixed.

There a consumer group has three names, by command: --group, --groupName and --consumerGroup; a
cluster has two: --clusterName and --cluster.
"""

from typing import Annotated, Any

import typer

from mq.cli.time_expressions import FORMS


def topic_option(text: str = "Topic name.", *, metavar: str = "TOPIC") -> Any:
    return typer.Option("-t", "--topic", metavar=metavar, help=text)


def group_option(
    name: str = "--group", text: str = "Consumer group.", *, metavar: str = "GROUP"
) -> Any:
    return typer.Option("-g", name, metavar=metavar, help=text)


def broker_option(text: str = "Address of the broker.") -> Any:
    return typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help=text)


def cluster_option(text: str, *, name: str = "--clusterName") -> Any:
    return typer.Option("-c", name, metavar="CLUSTER", help=text)


Topic = Annotated[str, topic_option()]
BeginTimestamp = Annotated[
    str | None,
    typer.Option("-b", "--beginTimestamp", metavar="TIME", help=f"Start here: {FORMS}."),
]
EndTimestamp = Annotated[
    str | None, typer.Option("-e", "--endTimestamp", metavar="TIME", help="End there.")
]
