"""The options that commands share, declared once.

`cluster` is for every command that gets a `Call`, `tube` for those of TubeMQ, and `layout` with
either. `reads` is for those that
change nothing, `writes` for those that do, `destroys` for those that do it for good
(`mq.cli.runtime.effects`). A command's own flag wins over the same flag here.
"""

from typing import Annotated

import typer

from mq.cli.moments import seconds
from mq.cli.show.output import Format
from mq.cli.show.record_format import Body


def cluster(
    namesrv_addr: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrvAddr",
            metavar="HOST:PORT[;…]",
            help="Name servers. Default: NAMESRV_ADDR, the context, 127.0.0.1:9876.",
        ),
    ] = None,
    output: Annotated[
        Format | None,
        typer.Option(
            "-o",
            "--output",
            help="Format. Default: MQ_OUTPUT, table on a terminal, plain elsewhere.",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="NAME", help="Context to use. Default: MQ_CONTEXT."),
    ] = None,
    acl_file: Annotated[
        str | None,
        typer.Option(
            "--acl-file",
            metavar="FILE",
            help="YAML with accessKey and secretKey. Default: MQ_ACL_FILE, the context, "
            "$ROCKETMQ_HOME/conf/tools.yml.",
        ),
    ] = None,
    tls_config: Annotated[
        str | None,
        typer.Option(
            "--tls-config",
            metavar="FILE",
            help="Use TLS, as this tls.properties says. Default: MQ_TLS_CONFIG, the context.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            parser=seconds,
            help="How long to wait for each answer: 2, 500ms. Default: MQ_TIMEOUT, 5.",
        ),
    ] = None,
) -> None:
    """Which cluster, and in which format."""


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
            help="Where masters are administered: HTTP. Default: 8080.",
        ),
    ] = 8080,
    output: Annotated[
        Format | None,
        typer.Option(
            "-o",
            "--output",
            help="Format. Default: MQ_OUTPUT, table on a terminal, plain elsewhere.",
        ),
    ] = None,
    acl_file: Annotated[
        str | None,
        typer.Option(
            "--acl-file",
            metavar="FILE",
            help="YAML with the user as accessKey, the password as secretKey. "
            "Default: MQ_ACL_FILE.",
        ),
    ] = None,
    tls_config: Annotated[
        str | None,
        typer.Option(
            "--tls-config",
            metavar="FILE",
            help="Use TLS, as this tls.properties says. Default: MQ_TLS_CONFIG.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            parser=seconds,
            help="How long to wait for each answer: 2, 500ms. Default: MQ_TIMEOUT, 5.",
        ),
    ] = None,
) -> None:
    """Which cluster of TubeMQ, and in which format."""


def layout(
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAME,…", help="Only these columns, in this order."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort", metavar="[-]NAME,…", help="Sort rows by these columns; -: the greatest first."
        ),
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="Rows only, without the names of columns.")
    ] = False,
    utc: Annotated[
        bool, typer.Option("--utc", help="Times in UTC, ISO 8601, also in tables.")
    ] = False,
) -> None:
    """How rows are shown."""


def messages(
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=r"What to print of each message: '%T %q %o %k %b\n'..",
        ),
    ] = None,
    body: Annotated[
        Body | None,
        typer.Option("--body", help="How bodies are written. Default: text, base64 where not."),
    ] = None,
) -> None:
    """Options of commands that show messages."""


def reads(
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            parser=seconds,
            help="Ask again and again, until Ctrl-C: every 2, 500ms, 1m.",
        ),
    ] = None,
) -> None:
    """Options of commands that change nothing."""


def writes(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be changed, and change nothing.")
    ] = False,
) -> None:
    """Options of commands that change something."""


def destroys(
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask. Without a terminal nobody is asked.")
    ] = False,
) -> None:
    """Options of commands that change something for good."""


SOURCES = (cluster, layout, tube, messages, reads, writes, destroys)
