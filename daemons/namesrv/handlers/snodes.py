"""Requests about registered snodes."""

from mq.daemons.channel import Channel
from mq.daemons.namesrv.snodes import LONGEST_TEXT, Snodes
from mq.daemons.request_codes import serves
from mq.protocol.bodies import SnodeData
from mq.protocol.codes import SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.snode import GetSnodeInfoRequestHeader, RegisterSnodeRequestHeader


class SnodeHandlers:
    """Registers snodes, and lists them."""

    def __init__(self, snodes: Snodes) -> None:
        self._snodes = snodes

    @serves(SnodeCode.REGISTER_SNODE)
    def register(self, command: Command, channel: Channel) -> Command:
        """Register a snode with its address for clients."""
        header = RegisterSnodeRequestHeader.decode(command.fields)
        texts = (header.snode_name, header.snode_addr, header.cluster_name)
        if not all(0 < len(text) <= LONGEST_TEXT for text in texts):
            raise RemoteProtocolError(
                f"the name, address and cluster of a snode must have 1 to {LONGEST_TEXT} characters"
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
        """All snodes, by name and by cluster."""
        return command.reply(body=self._snodes.info().encode())

    @serves(SnodeCode.GET_SNODE_INFO)
    def of_cluster(self, command: Command, channel: Channel) -> Command:
        """The snodes of one cluster. Java keys them by the cluster's name, so that only one is
        left.
        """
        header = GetSnodeInfoRequestHeader.decode(command.fields)
        return command.reply(body=self._snodes.info(header.snode_cluster_name).encode())
