"""Snodes that are registered."""

from mq.daemons.channel import Channel
from mq.daemons.namesrv.snodes import LONGEST_TEXT, Snodes
from mq.daemons.request_codes import serves
from mq.protocol.bodies import SnodeData
from mq.protocol.codes import SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.snode import GetSnodeInfoRequestHeader, RegisterSnodeRequestHeader


class SnodeHandlers:
    """Snodes that come, and who asks for them."""

    def __init__(self, snodes: Snodes) -> None:
        self._snodes = snodes

    @serves(SnodeCode.REGISTER_SNODE)
    def register(self, command: Command, channel: Channel) -> Command:
        """A snode says that it lives, and where clients reach it."""
        header = RegisterSnodeRequestHeader.decode(command.fields)
        texts = (header.snode_name, header.snode_addr, header.cluster_name)
        if not all(0 < len(text) <= LONGEST_TEXT for text in texts):
            raise RemoteProtocolError(
                f"a name, an address or a cluster of a snode with none or over {LONGEST_TEXT} "
                "characters"
            )
        self._snodes.register(
            SnodeData(
                snode_name=header.snode_name,
                address=header.snode_addr,
                cluster_name=header.cluster_name,
            )
        )
        return command.reply()

    @serves(SnodeCode.GET_SNODE_CLUSTER_INFO)
    def all_snodes(self, command: Command, channel: Channel) -> Command:
        """Every snode, by name and by cluster."""
        return command.reply(body=self._snodes.info().encode())

    @serves(SnodeCode.GET_SNODE_INFO)
    def of_cluster(self, command: Command, channel: Channel) -> Command:
        """The snodes of one cluster. Java keys them by the cluster's name, so that one is left."""
        header = GetSnodeInfoRequestHeader.decode(command.fields)
        return command.reply(body=self._snodes.info(header.snode_cluster_name).encode())
