"""The name server's own settings."""

from mq.daemons.channel import Channel
from mq.daemons.config_requests import update_settings
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.serving import serves
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command


class ConfigHandlers:
    """The name server's own settings."""

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings

    @serves(RequestCode.UPDATE_NAMESRV_CONFIG)
    def update(self, command: Command, channel: Channel) -> Command:
        """Change settings of the allow list, all or none."""
        update_settings(self._settings, command, channel)
        return command.reply()

    @serves(RequestCode.GET_NAMESRV_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        return command.reply(body=self._settings.text().encode())
