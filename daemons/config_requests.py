"""Changes of a daemon's settings that are asked for while it runs."""

import logging

from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError, NotUpdatable, Settings
from mq.daemons.dispatch import Refused
from mq.daemons.properties import read_update
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)


def update_settings(settings: Settings, command: Command, channel: Channel) -> frozenset[str]:
    """Change what the body of a request says, all of it or nothing; returns the changed names.

    Raises Refused.
    """
    try:
        changed = settings.update(read_update(command.body))
    except NotUpdatable as error:
        raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
    except (ConfigError, ValueError) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
    log.info("%s changed settings: %s", channel.remote, ", ".join(sorted(changed)) or "none")
    return changed
