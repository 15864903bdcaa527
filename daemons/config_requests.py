"""Requests to change a daemon's settings at run time."""

import logging

from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError, NotUpdatable, Settings, Update
from mq.daemons.dispatch import Refused
from mq.daemons.properties import read_update
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)


def update_settings(settings: Settings, command: Command, channel: Channel) -> Update:
    """Change the settings in the body of a request, all or none. Raises Refused."""
    try:
        update = settings.update(read_update(command.body))
    except NotUpdatable as error:
        raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
    except (ConfigError, ValueError) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
    log.info("%s changed settings: %s", channel.remote, ", ".join(sorted(update.changed)) or "none")
    for note in update.notes:
        log.warning("%s changed a setting: %s", channel.remote, note)
    return update


def reply_to_update(command: Command, update: Update) -> Command:
    """The successful reply, with the notes as its remark, which Java's tools ignore."""
    return command.reply(remark="; ".join(update.notes) or None)
