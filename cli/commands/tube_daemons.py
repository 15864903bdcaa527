"""The daemons of TubeMQ: a master, a broker, and both for tests.

Sources: MasterStartup and BrokerStartup, whose only option is -f.
"""

from pathlib import Path
from typing import Annotated

import typer

from mq.cli.daemon_start import ConfigItem, StartOptions, configuring, overrides_of, started
from mq.cli.runtime.env import Environment
from mq.cli.runtime.status import Status

COMMANDS = {"daemon": ("tube master", "tube broker", "tube standalone")}

IniFile = Annotated[
    str | None,
    typer.Option("-f", "--file", metavar="FILE", help="Settings file: master.ini or broker.ini."),
]


def tube_master(
    environment: Environment,
    config_file: IniFile = None,
    *,
    start: StartOptions,
) -> int:
    """Run a TubeMQ master, with which clients and brokers register.

    It runs until SIGTERM or Ctrl-C. Its configuration is kept in SQLite (metaDataPath) or, by the
    masters of a set (masterGroup), in etcd, which also elects the active one. It reads the sections
    master, etcd, tls and operation of the file; the original's databases are not supported.

    Examples:
        mq tube master -f master.ini  with settings of a file
        mq tube master -p             the default settings
    """
    from mq.daemons.tube.master.config import MasterSettings

    settings = start.settings(environment, MasterSettings.load, config_file)
    if settings is None:
        return Status.DONE
    from mq.daemons.tube.master.app import Master

    return started(settings, Master)


def tube_broker(
    environment: Environment,
    config_file: IniFile = None,
    *,
    start: StartOptions,
) -> int:
    """Run a TubeMQ broker, whose message files the original can read, too.

    It runs until SIGTERM or Ctrl-C. It gets its topics from its masters (masterAddressList), ours
    or the original.

    Examples:
        mq tube broker -f broker.ini  with settings of a file
        mq tube broker -p             the default settings
    """
    from mq.daemons.tube.broker.config import BrokerSettings

    settings = start.settings(environment, BrokerSettings.load, config_file)
    if settings is None:
        return Status.DONE
    from mq.daemons.tube.broker.app import Broker

    return started(settings, Broker)


def tube_standalone(
    environment: Environment,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="DIR", help="Directory for messages. Default: a temporary one."
        ),
    ] = None,
    master_port: Annotated[
        int,
        typer.Option("--master-port", metavar="PORT", help="Port of the master; 0: any free one."),
    ] = 8715,
    broker_port: Annotated[
        int,
        typer.Option("--broker-port", metavar="PORT", help="Port of the broker; 0: any free one."),
    ] = 8123,
    web_port: Annotated[
        int,
        typer.Option(
            "--web-port", metavar="PORT", help="Port of the master's web API; 0: any free one."
        ),
    ] = 8080,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME[:PARTITIONS]", help="Topic to create."),
    ] = None,
    config_item: ConfigItem = None,
) -> int:
    """Run a TubeMQ master and a broker in one process.

    For trials and tests: both listen on loopback and run until SIGTERM or Ctrl-C. The store is
    deleted at the end unless --store names a directory. Topics exist at once, and members of a
    group get their partitions within a second. --set applies to both.

    Examples:
        mq tube standalone  on ports 8715 and 8123, with a temporary store
        mq tube standalone --topic Orders:3 --store ./tube
                            with a topic; keep messages
    """
    from mq.daemons.service import run
    from mq.daemons.tube.standalone import TubeStandalone, parse_topics

    with configuring(printing=False):
        properties = overrides_of(config_item)
        wanted = parse_topics(topics or [])
    return run(
        lambda: TubeStandalone(
            Path(store) if store else None,
            master_port=master_port,
            broker_port=broker_port,
            web_port=web_port,
            topics=wanted,
            properties=properties,
        )
    )
