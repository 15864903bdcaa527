"""Requests about the name server's settings."""

from mq.daemons.channel import Channel
from mq.daemons.config_requests import reply_to_update, update_settings
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command


class ConfigHandlers:
    """Shows and changes the name server's settings."""

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings

    @serves(RequestCode.UPDATE_NAMESRV_CONFIG)
    def update(self, command: Command, channel: Channel) -> Command:
        """Change settings, all or none; some take effect at the next start."""
        return reply_to_update(command, update_settings(self._settings, command, channel))

    @serves(RequestCode.GET_NAMESRV_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        return command.reply(body=self._settings.text().encode())
