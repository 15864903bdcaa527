"""The options that commands share, declared once.

`cluster` is for every command with a `Call`, `tube` for those of TubeMQ, and `layout` for both.
`reads` is for commands that change nothing, `writes` for those that do, `destroys` for irreversible
changes (`mq.cli.runtime.effects`). A command's own flag overrides the same flag here.
"""

from typing import Annotated

import typer

from mq.cli.show.output import Format
from mq.cli.show.record_format import BodyFormat
from mq.cli.time_expressions import seconds

_Output = Annotated[
    Format | None,
    typer.Option(
        "-o",
        "--output",
        help="Format. Default: MQ_OUTPUT; else table at a terminal, plain elsewhere.",
    ),
]
_Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        parser=seconds,
        help="Seconds to wait for each reply: 2, 500ms. Default: MQ_TIMEOUT, 5.",
    ),
]


def cluster(
    namesrv_addr: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrvAddr",
            metavar="HOST:PORT[;…]",
            help="Name servers. Default: the context of --context or MQ_CONTEXT, "
            "NAMESRV_ADDR, the current context, 127.0.0.1:9876.",
        ),
    ] = None,
    output: _Output = None,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="NAME", help="Context to use. Default: MQ_CONTEXT."),
    ] = None,
    acl_file: Annotated[
        str | None,
        typer.Option(
            "--acl-file",
            metavar="FILE",
            help="YAML file with accessKey and secretKey. Default: MQ_ACL_FILE, the context, "
            "$ROCKETMQ_HOME/conf/tools.yml.",
        ),
    ] = None,
    tls_config: Annotated[
        str | None,
        typer.Option(
            "--tls-config",
            metavar="FILE",
            help="Use TLS with this tls.properties file. Default: MQ_TLS_CONFIG, the context.",
        ),
    ] = None,
    timeout: _Timeout = None,
) -> None:
    """The cluster, and the format."""


def tube(
    masters: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--masters",
            metavar="HOST:PORT[,…]",
            help="Masters of TubeMQ. Default: MQ_TUBE_MASTERS, 127.0.0.1:8715.",
        ),
    ] = None,
    web_port: Annotated[
        int,
        typer.Option(
            "--web-port",
            metavar="PORT",
            help="Port of the masters' web API.",
        ),
    ] = 8080,
    output: _Output = None,
    acl_file: Annotated[
        str | None,
        typer.Option(
            "--acl-file",
            metavar="FILE",
            help="YAML file with the user as accessKey and the password as secretKey. "
            "Default: MQ_ACL_FILE.",
        ),
    ] = None,
    tls_config: Annotated[
        str | None,
        typer.Option(
            "--tls-config",
            metavar="FILE",
            help="Use TLS with this tls.properties file. Default: MQ_TLS_CONFIG.",
        ),
    ] = None,
    timeout: _Timeout = None,
) -> None:
    """The TubeMQ cluster, and the format."""


def layout(
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAME,…", help="Show only these columns, in this order."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="[-]NAME,…",
            help="Sort rows by these columns; with -, in descending order.",
        ),
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="Print the rows without column names.")
    ] = False,
    utc: Annotated[
        bool, typer.Option("--utc", help="Show times in UTC and ISO 8601, in tables, too.")
    ] = False,
) -> None:
    """The layout of rows."""


def messages(
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=r"Print each message in this format, such as '%T %q %o %k %b\n' (see man mq).",
        ),
    ] = None,
    body: Annotated[
        BodyFormat | None,
        typer.Option(
            "--body",
            help="Form of bodies. Default: text, or base64 if a body is not UTF-8.",
        ),
    ] = None,
) -> None:
    """Options of commands that show messages."""


def reads(
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="N",
            parser=seconds,
            help="Repeat every N seconds (2, 500ms, 1m), until Ctrl-C.",
        ),
    ] = None,
) -> None:
    """Options of commands that change nothing."""


def writes(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes without making them.")
    ] = False,
) -> None:
    """Options of commands that change something."""


def destroys(
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Do not ask for confirmation. Without a terminal it never asks."
        ),
    ] = False,
) -> None:
    """Options of commands with irreversible changes."""


SOURCES = (cluster, layout, tube, messages, reads, writes, destroys)
