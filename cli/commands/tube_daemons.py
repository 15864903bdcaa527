"""The daemons of TubeMQ. Source: MasterStartup, whose only option is -f."""

from typing import Annotated

import typer

from mq.cli.commands.daemon import (
    ConfigItem,
    PrintAll,
    PrintImportant,
    configuring,
    overrides_of,
    path_of,
    printed,
    told,
)
from mq.cli.runtime.env import Environment
from mq.cli.runtime.status import Status

COMMANDS = {"daemon": ("tube master",)}

IniFile = Annotated[str | None, typer.Option("-f", "--file", metavar="FILE", help="master.ini.")]


def tube_master(
    environment: Environment,
    config_file: IniFile = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    config_item: ConfigItem = None,
) -> int:
    """Run a TubeMQ master, which clients and brokers of TubeMQ register with.

    It runs until SIGTERM or Ctrl-C. What administrators set up is kept in SQLite (metaDataPath) or,
    by the masters of a set (masterGroup), in etcd, which also elects the active one. Of the file
    the sections master, etcd, tls and operation are read; the original's databases are not.
    """
    from mq.daemons.tube.master.config import MasterSettings

    with configuring(printing=print_all or print_important):
        settings = MasterSettings.load(path_of(config_file), overrides_of(config_item))
    if printed(environment, settings, print_all, print_important):
        return Status.DONE
    from mq.daemons.service import run
    from mq.daemons.tube.master.app import Master

    return run(lambda: told(settings, Master(settings)))
