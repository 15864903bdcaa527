"""The name server's own settings."""

import logging

from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError, NotUpdatable
from mq.daemons.dispatch import Refused
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.properties import read_update
from mq.daemons.serving import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)


class ConfigHandlers:
    """The name server's own settings."""

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings

    @serves(RequestCode.UPDATE_NAMESRV_CONFIG)
    def update(self, command: Command, channel: Channel) -> Command:
        """Change settings of the allow list, all or none."""
        try:
            properties = read_update(command.body)
            changed = self._settings.update(properties)
        except NotUpdatable as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except (ConfigError, ValueError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s changed settings: %s", channel.remote, ", ".join(sorted(changed)) or "none")
        return command.reply()

    @serves(RequestCode.GET_NAMESRV_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        return command.reply(body=self._settings.text().encode())
